package wiring

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
)

func authority(t *testing.T) *local.CA {
	t.Helper()
	ca, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func pairOf(t *testing.T, ca *local.CA, host string) (cert, key []byte) {
	t.Helper()
	cert, key, err := ca.Issue(host)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mutual is a listener that asks for certificates, and tells whose it was shown.
type mutual struct {
	t       *testing.T
	url     string
	servers *local.CA
	files   configs.ServerTLS
	own     *Certificate
}

func serveMutual(t *testing.T, callers *local.CA) *mutual {
	t.Helper()
	dir := t.TempDir()
	m := &mutual{t: t, servers: authority(t), files: configs.ServerTLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
		ClientCAFile: filepath.Join(dir, "callers.pem")}}
	cert, key := pairOf(t, m.servers, "127.0.0.1")
	write(t, m.files.CertFile, cert)
	write(t, m.files.KeyFile, key)
	write(t, m.files.ClientCAFile, callers.PEM())
	var err error
	if m.own, err = OpenCertificate(&m.files); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.url = "https://" + l.Addr().String()
	server := &http.Server{TLSConfig: m.own.Mutual(), ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Protocol", r.Proto)
		if len(r.TLS.VerifiedChains) > 0 {
			w.Header().Set("X-Shown", r.TLS.VerifiedChains[0][0].DNSNames[0])
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving: %v", err)
		}
	})
	return m
}

// ask makes one request over a connection of its own; ca nil = no certificate is shown.
func (m *mutual) ask(ca *local.CA, sessions tls.ClientSessionCache) (shown, protocol string, err error) {
	m.t.Helper()
	config := m.servers.ClientConfig()
	config.ClientSessionCache = sessions
	if ca != nil {
		cert, key := pairOf(m.t, ca, "orders.example")
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			m.t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get(m.url)
	if err != nil {
		return "", "", err
	}
	defer r.Body.Close()
	return r.Header.Get("X-Shown"), r.Header.Get("X-Protocol"), nil
}

func TestCertificatesOfCallers(t *testing.T) {
	callers, others := authority(t), authority(t)
	m := serveMutual(t, callers)
	sessions := tls.NewLRUClientSessionCache(4)
	if shown, protocol, err := m.ask(callers, sessions); err != nil || shown != "orders.example" || protocol != "HTTP/2.0" {
		t.Errorf("signed by the CA of callers: %q by %s, %v", shown, protocol, err)
	}
	if shown, protocol, err := m.ask(nil, nil); err != nil || shown != "" || protocol != "HTTP/2.0" {
		t.Errorf("without one: %q by %s, %v", shown, protocol, err)
	}
	if _, _, err := m.ask(others, nil); err == nil {
		t.Error("signed by somebody else: the connection was taken")
	}
	if _, _, err := m.ask(m.servers, nil); err == nil {
		t.Error("signed by the CA of servers: the connection was taken")
	}

	// Another CA is in force without a restart, for resumed sessions too.
	write(t, m.files.ClientCAFile, others.PEM())
	if err := m.own.load(); err != nil {
		t.Fatal(err)
	}
	if shown, _, err := m.ask(others, nil); err != nil || shown != "orders.example" {
		t.Errorf("signed by the new CA: %q, %v", shown, err)
	}
	if shown, _, err := m.ask(callers, sessions); err == nil {
		t.Errorf("signed by the former CA: %q was taken", shown)
	}

	// What cannot be read leaves who signs as it is.
	write(t, m.files.ClientCAFile, []byte("half a fi"))
	if err := m.own.load(); err == nil {
		t.Error("a file without a certificate was taken")
	}
	if shown, _, err := m.ask(others, nil); err != nil || shown != "orders.example" {
		t.Errorf("after a file that cannot be read: %q, %v", shown, err)
	}
	if _, _, err := m.ask(callers, nil); err == nil {
		t.Error("after a file that cannot be read everybody is taken")
	}
}

// A dashboard has the same certificate, and asks browsers for none.
func TestPagesAskForNoCertificate(t *testing.T) {
	m := serveMutual(t, authority(t))
	if c := m.own.TLS(); c.ClientAuth != tls.NoClientCert || c.GetConfigForClient != nil {
		t.Error("it asks")
	}
	m.files.ClientCAFile = ""
	if c := m.own.Mutual(); c.GetConfigForClient != nil || c.ClientCAs != (*x509.CertPool)(nil) {
		t.Error("it asks without a CA to sign what it gets")
	}
	var none *Certificate
	if none.Mutual() != nil {
		t.Error("TLS without a certificate")
	}
}
