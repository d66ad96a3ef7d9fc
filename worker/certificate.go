package worker

import "context"

// watchCertificate reads the certificate for callers again until ctx ends, and tells when it
// cannot.
func (g *openGateway) watchCertificate(ctx context.Context) {
	g.aside.set("certificate", nil)
	failed := false
	g.certificate.Watch(ctx, g.Config.Gateway.ReloadKeys, func(err error) {
		g.aside.set("certificate", err)
		if err != nil && !failed {
			g.Log.Error("the certificate for callers is not read; the former one stays in force", "error", err)
		}
		failed = err != nil
	})
}
