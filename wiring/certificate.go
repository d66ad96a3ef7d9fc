package wiring

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/configs"
)

// Certificate is that of a listener, and who signs those of its callers; both are read
// again, so that they can be renewed. It is safe for concurrent use.
type Certificate struct {
	files *configs.ServerTLS
	pair  atomic.Pointer[tls.Certificate]
	cas   atomic.Pointer[x509.CertPool] // nil = callers are not asked for certificates
}

// OpenCertificate reads a certificate for the first time; nil without files.
func OpenCertificate(files *configs.ServerTLS) (*Certificate, error) {
	c := &Certificate{files: files}
	if err := c.load(); err != nil || c.pair.Load() == nil {
		return nil, err
	}
	return c, nil
}

// load reads all files. What cannot be read stays as it was.
func (c *Certificate) load() error {
	pair, err := c.files.Certificate()
	if err == nil && pair != nil {
		c.pair.Store(pair)
	}
	cas, caErr := c.files.ClientCAs()
	if caErr == nil {
		c.cas.Store(cas)
	}
	return errors.Join(err, caErr)
}

// TLS is how a listener is secured by it; nil by none.
func (c *Certificate) TLS() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil }}
}

// Mutual is TLS that also asks who connects for a certificate of the CAs that are in force
// then; one that none of them has signed ends the handshake, and nobody needs to have one.
func (c *Certificate) Mutual() *tls.Config {
	if c == nil || c.files.ClientCAFile == "" {
		return c.TLS()
	}
	outer := c.TLS()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		asking := c.TLS()
		asking.NextProtos = []string{"h2", "http/1.1"} // http.Server adds them to the outer one alone
		asking.ClientAuth, asking.ClientCAs = tls.VerifyClientCertIfGiven, c.cas.Load()
		// A resumed session would bring a certificate back whose CA is gone.
		asking.SessionTicketsDisabled = true
		return asking, nil
	}
	return outer
}

// Watch reads it again at intervals until ctx ends. While it cannot be read the former one
// stays. told gets the result of each reading.
func (c *Certificate) Watch(ctx context.Context, every time.Duration, told func(err error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			told(c.load())
		}
	}
}
