package wiring

import (
	"context"
	"crypto/tls"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/configs"
)

// Certificate is that of a listener, which is read again so that it can be renewed. It is
// safe for concurrent use.
type Certificate struct {
	files *configs.ServerTLS
	pair  atomic.Pointer[tls.Certificate]
}

// OpenCertificate reads a certificate for the first time; nil without files.
func OpenCertificate(files *configs.ServerTLS) (*Certificate, error) {
	c := &Certificate{files: files}
	if err := c.load(); err != nil || c.pair.Load() == nil {
		return nil, err
	}
	return c, nil
}

func (c *Certificate) load() error {
	pair, err := c.files.Certificate()
	if err == nil && pair != nil {
		c.pair.Store(pair)
	}
	return err
}

// TLS is how a listener is secured by it; nil by none.
func (c *Certificate) TLS() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil }}
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
