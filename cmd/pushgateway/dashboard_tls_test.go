package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
)

// certify writes a certificate of this machine and its key, signed by itself.
func certify(t *testing.T, files configs.ServerTLS, serial int64) (roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: cert}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return roots
}

// The dashboard has the gateway's certificate, and takes a new one without a restart; one
// that cannot be read changes nothing. A session's cookie goes no other way.
func TestDashboardByTLS(t *testing.T) {
	c := teamFleet(t)
	dir := t.TempDir()
	c.Gateway.TLS = configs.ServerTLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	roots := certify(t, c.Gateway.TLS, 1)
	b, stop := serveBoard(t, c, nil)
	defer stop()
	at := strings.Replace(b.url, "http:", "https:", 1)
	login := func(roots *x509.CertPool) (*http.Response, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
		client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		r, err := client.PostForm(at+"/login", url.Values{"key": {keyOf("eye")}})
		if err == nil {
			_ = r.Body.Close()
		}
		return r, err
	}
	r, err := login(roots)
	if err != nil {
		t.Fatal(err)
	}
	if cookies := r.Cookies(); len(cookies) == 0 || !cookies[0].Secure || !cookies[0].HttpOnly {
		t.Errorf("the session: %v", cookies)
	}
	if err := os.WriteFile(c.Gateway.TLS.CertFile, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := login(roots); err != nil {
		t.Errorf("a file that cannot be read: %v", err)
	}
	renewed := certify(t, c.Gateway.TLS, 2)
	for tries := 0; ; tries++ {
		if _, err = login(renewed); err == nil {
			break
		}
		if tries == patience {
			t.Fatalf("the new certificate is not used: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
