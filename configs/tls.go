package configs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
)

// TLS is how a connection is secured. The server's certificate is always
// checked; there is no way to switch that off.
type TLS struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

func (t *TLS) check(ps *Problems, path string) {
	if !t.Enabled && (t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != "") {
		ps.add(path+".enabled", "must be true: the other keys of the section have no effect without it")
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		ps.add(path+".cert_file", "and key_file must be set together")
	}
}

// Config builds the client's side, from TLS 1.2 on. It is nil when TLS is not
// enabled. The files are read now; the error names the one at fault, and
// nothing of its content.
func (t *TLS) Config() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c, err := clientTLS(t.CAFile)
	if err != nil {
		return nil, err
	}
	c.ServerName = t.ServerName
	if t.CertFile != "" {
		cert, err := os.ReadFile(t.CertFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		key, err := ReadSecret(t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client key: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, []byte(key.Reveal()))
		if err == nil {
			err = whole(cert)
		}
		if err != nil {
			return nil, fmt.Errorf("client certificate %s and key %s do not match: %w", t.CertFile, t.KeyFile, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// TLSConfig is the client's side of connections to Apple.
func (a *APNS) TLSConfig() (*tls.Config, error) { return clientTLS(a.CAFile) }

// TLSConfig is the client's side of connections to Google.
func (f *FCM) TLSConfig() (*tls.Config, error) { return clientTLS(f.CAFile) }

// clientTLS trusts the certificates of caFile, or the system's without one.
func clientTLS(caFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates: %w", err)
	}
	if err := whole(text); err != nil {
		return nil, fmt.Errorf("reading the CA certificates: %s: %w", caFile, err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the CA certificates: %w", errors.New(caFile+" contains no PEM certificate"))
	}
	return c, nil
}

// whole refuses a file with a block that begins and cannot be read: it is still being
// written. Go's readers pass over such blocks, so that some of the certificates would be
// taken for all.
func whole(text []byte) error {
	begun := bytes.Count(text, []byte("-----BEGIN "))
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		begun--
	}
	if begun != 0 {
		return errors.New("a PEM block is cut off")
	}
	return nil
}

// Files are those that Config reads.
func (t *TLS) Files() []string { return Named(t.CAFile, t.CertFile, t.KeyFile) }

// Named are the files whose name is not empty.
func Named(files ...string) []string {
	return slices.DeleteFunc(files, func(name string) bool { return name == "" })
}
