// Package kube is the little of a Kubernetes client that this module needs: JSON over HTTPS, without a dependency.
package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Client talks to one API server as one user.
type Client struct {
	server string
	token  string
	http   *http.Client
}

// Files names the PEM files of a client certificate.
type Files struct{ CA, Cert, Key string }

// New builds a client from PEM files.
func New(server string, files Files) (*Client, error) {
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	return build(server, "", ca, &pair)
}

func build(server, token string, ca []byte, pair *tls.Certificate) (*Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the CA holds no PEM certificate")
		}
	}
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	transport := &http.Transport{
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 64,
	}
	return &Client{
		server: strings.TrimRight(server, "/"),
		token:  token,
		http:   &http.Client{Transport: transport, Timeout: 60 * time.Second},
	}, nil
}

// FromKubeconfig reads the current context of a kubeconfig by asking kubectl, which knows all its forms. Exec plugins are not supported.
func FromKubeconfig(kubectl, path string) (*Client, error) {
	out, err := exec.Command(kubectl, "--kubeconfig", path, "config", "view", "--raw", "--flatten", "--minify", "-o", "json").Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl config view of %s: %w", path, err)
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     string `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Cert  string `json:"client-certificate-data"`
				Key   string `json:"client-key-data"`
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal(out, &config); err != nil {
		return nil, err
	}
	if len(config.Clusters) == 0 || len(config.Users) == 0 {
		return nil, fmt.Errorf("%s has no current context with a cluster and a user", path)
	}
	cluster, user := config.Clusters[0].Cluster, config.Users[0].User
	ca, err := base64.StdEncoding.DecodeString(cluster.CA)
	if err != nil {
		return nil, fmt.Errorf("certificate-authority-data of %s: %w", path, err)
	}
	if user.Cert == "" {
		return build(cluster.Server, user.Token, ca, nil)
	}
	cert, err := base64.StdEncoding.DecodeString(user.Cert)
	if err != nil {
		return nil, fmt.Errorf("client-certificate-data of %s: %w", path, err)
	}
	key, err := base64.StdEncoding.DecodeString(user.Key)
	if err != nil {
		return nil, fmt.Errorf("client-key-data of %s: %w", path, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return build(cluster.Server, user.Token, ca, &pair)
}

// Server is the API server's address.
func (c *Client) Server() string { return c.server }

// StatusError is an answer other than 2xx.
type StatusError struct {
	Code    int
	Message string
}

// Error says what the server said.
func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Message) }

// IsConflict tells an object that is already there (or has changed) from a failure.
func IsConflict(err error) bool { return hasCode(err, http.StatusConflict) }

// IsNotFound tells an absent object from a failure.
func IsNotFound(err error) bool { return hasCode(err, http.StatusNotFound) }

func hasCode(err error, code int) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == code
}

// Content types of bodies.
const (
	JSON  = "application/json"
	Merge = "application/merge-patch+json"
	// Strategic merges lists of known kinds by their key, such as a node's conditions by type.
	Strategic = "application/strategic-merge-patch+json"
)

// Get reads an object into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.Do(ctx, http.MethodGet, path, JSON, nil, out)
}

// Post creates an object.
func (c *Client) Post(ctx context.Context, path string, body, out any) error {
	return c.Do(ctx, http.MethodPost, path, JSON, body, out)
}

// Do sends one request; body and out may be nil.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body, out any) error {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, reader)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return &StatusError{response.StatusCode, message(text)}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

func message(text []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(text[:min(len(text), 300)]))
}
