package cluster

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"berth.dev/hack/controlplane/internal/pki"
)

// users of the control plane itself. KWOK plays kubelets, so it is in system:nodes, where admission policies look for
// kubelets; its name does not begin with system:node:, so that NodeRestriction does not tie it to one node.
var users = []struct {
	name, user string
	groups     []string
}{
	{"admin", "plane-admin", []string{"system:masters"}},
	{"manager", "system:kube-controller-manager", nil},
	{"kwok", "kwok", []string{"system:nodes", "system:masters"}},
}

// writePKI makes the CA, all certificates, and the kubeconfigs of the users above.
func (s *State) writePKI() error {
	if err := os.MkdirAll(filepath.Join(s.Dir, "pki"), 0o700); err != nil {
		return err
	}
	ca, err := pki.NewCA("berth-plane")
	if err != nil {
		return err
	}
	server, err := ca.Server("kube-apiserver",
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		[]net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(firstServiceIP)})
	if err != nil {
		return err
	}
	private, public, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"ca.crt": ca.Cert, "ca.key": ca.Key, "server.crt": server.Cert, "server.key": server.Key, "sa.key": private, "sa.pub": public,
	} {
		if err := os.WriteFile(s.pki(name), text, 0o600); err != nil {
			return err
		}
	}
	for _, user := range users {
		if err := s.writeUser(ca, user.name, user.user, user.groups); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) writeUser(ca *pki.CA, name, user string, groups []string) error {
	pair, err := ca.Client(user, groups)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.pki(name+".crt"), pair.Cert, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(s.pki(name+".key"), pair.Key, 0o600); err != nil {
		return err
	}
	path := s.internalKubeconfig(name)
	if name == "admin" {
		path = s.Kubeconfig
	}
	return writeKubeconfig(path, kubeconfig{server: s.Server, ca: ca.Cert, user: user, pair: pair})
}

// User writes a kubeconfig for any user in any groups, by a certificate.
func (s *State) User(user string, groups []string, namespace, path string) error {
	if s.External {
		return fmt.Errorf("a cluster of somebody else: its CA key is not ours to sign users with")
	}
	ca, err := pki.LoadCA(s.pki("ca.crt"), s.pki("ca.key"))
	if err != nil {
		return err
	}
	pair, err := ca.Client(user, groups)
	if err != nil {
		return err
	}
	return writeKubeconfig(path, kubeconfig{server: s.Server, ca: ca.Cert, user: user, pair: pair, namespace: namespace})
}

// TokenUser writes a kubeconfig that carries a bearer token.
func (s *State) TokenUser(user, token, namespace, path string) error {
	ca, err := os.ReadFile(s.pki("ca.crt"))
	if err != nil {
		return err
	}
	return writeKubeconfig(path, kubeconfig{server: s.Server, ca: ca, user: user, token: token, namespace: namespace})
}

type kubeconfig struct {
	server    string
	ca        []byte
	user      string
	pair      pki.Pair
	token     string
	namespace string
}

func writeKubeconfig(path string, k kubeconfig) error {
	credentials := "token: " + k.token
	if k.token == "" {
		credentials = fmt.Sprintf("client-certificate-data: %s\n    client-key-data: %s", b64(k.pair.Cert), b64(k.pair.Key))
	}
	namespace := k.namespace
	if namespace == "" {
		namespace = "default"
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: plane
clusters:
- name: plane
  cluster:
    server: %s
    certificate-authority-data: %s
contexts:
- name: plane
  context: {cluster: plane, user: %q, namespace: %s}
users:
- name: %q
  user:
    %s
`, k.server, b64(k.ca), k.user, namespace, k.user, credentials)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func b64(text []byte) string { return base64.StdEncoding.EncodeToString(text) }
