package pki

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(pair.Cert)
	if block == nil {
		t.Fatal("no PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestServerAndClientCertificatesVerifyAgainstTheirCAOnly(t *testing.T) {
	ca, err := NewCA("one")
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCA("two")
	if err != nil {
		t.Fatal(err)
	}
	server, err := ca.Server("s", []string{"localhost"}, []net.IP{net.ParseIP("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(ca *CA) error {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca.Cert)
		_, err := parse(t, server).Verify(x509.VerifyOptions{Roots: pool, DNSName: "127.0.0.1"})
		return err
	}
	if err := verify(ca); err != nil {
		t.Errorf("its own CA refuses it: %v", err)
	}
	if err := verify(other); err == nil {
		t.Error("a stranger's CA accepts it")
	}
	client, err := ca.Client("ann", []string{"team-a", "team-b"})
	if err != nil {
		t.Fatal(err)
	}
	if subject := parse(t, client).Subject; subject.CommonName != "ann" || len(subject.Organization) != 2 {
		t.Errorf("subject %v", subject)
	}
}

func TestACAReadFromFilesSignsAsBefore(t *testing.T) {
	ca, err := NewCA("one")
	if err != nil {
		t.Fatal(err)
	}
	cert, key := filepath.Join(t.TempDir(), "c"), filepath.Join(t.TempDir(), "k")
	if os.WriteFile(cert, ca.Cert, 0o600) != nil || os.WriteFile(key, ca.Key, 0o600) != nil {
		t.Fatal("write")
	}
	loaded, err := LoadCA(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := loaded.Client("ann", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := parse(t, client).CheckSignatureFrom(ca.cert); err != nil {
		t.Error(err)
	}
}
