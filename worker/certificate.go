package worker

import (
	"context"
	"time"
)

// loadCertificate reads the certificate for callers, if there is one.
func (g *openGateway) loadCertificate() error {
	pair, err := g.Config.Gateway.TLS.Certificate()
	if err == nil && pair != nil {
		g.pair.Store(pair)
	}
	return err
}

// watchCertificate reads the certificate again at intervals until ctx ends, so that it
// can be renewed. While it cannot be read the former one stays.
func (g *openGateway) watchCertificate(ctx context.Context) {
	g.aside.set("certificate", nil)
	ticker := time.NewTicker(g.Config.Gateway.ReloadKeys)
	defer ticker.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			err := g.loadCertificate()
			g.aside.set("certificate", err)
			if err != nil && !failed {
				g.Log.Error("the certificate for callers is not read; the former one stays in force", "error", err)
			}
			failed = err != nil
		}
	}
}
