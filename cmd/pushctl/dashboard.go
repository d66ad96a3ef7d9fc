package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/wiring/dashboards"
)

// dashboardFlags are the command line of dashboard.
type dashboardFlags struct {
	listen, keyFile, adminKeyFile, cert, certKey string
	insecure                                     bool
}

func newDashboardCommand(a *app) *cobra.Command {
	var f dashboardFlags
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "See the fleet live in a browser",
		Long: `Serve one page that shows what is sent, in progress and queued now, what became of the notifications of the last
hour and why, routes, stalls and workers, that looks up notifications and users, and lists dead letters. It reads
push.events, the groups' offsets, the DLQs, the status store and Redis.

It changes nothing, unless there is --admin-key-file: who logs in with that key may redrive and dismiss dead letters,
and pause, resume and cancel fan-outs, by typing what is to be done. The audit topic, or the log, keeps who did it.

Without a key it serves this machine alone. Any other address needs --key-file, a file with the key that browsers
are asked for (programs send it as Authorization: Bearer …), and TLS by --tls-cert and --tls-key; --insecure does
without TLS, behind a proxy that has it.`,
		Example: "  pushctl dashboard\n  pushctl dashboard --admin-key-file admin.key\n  pushctl dashboard --listen :8095 --key-file key --tls-cert tls.crt --tls-key tls.key",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serveDashboard(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8095", "`address` to serve at")
	flags.StringVar(&f.keyFile, "key-file", "", "`file` with the key that browsers must give")
	flags.StringVar(&f.adminKeyFile, "admin-key-file", "", "`file` with another key, of those who may redrive, dismiss, pause and cancel; default: nobody may")
	flags.StringVar(&f.cert, "tls-cert", "", "`file` with the certificate chain")
	flags.StringVar(&f.certKey, "tls-key", "", "`file` with the certificate's private key")
	flags.BoolVar(&f.insecure, "insecure", false, "serve other machines without TLS")
	return cmd
}

// access checks who may come how. pair is nil without TLS.
func (f *dashboardFlags) access() (access *dashboard.Access, pair *tls.Certificate, err error) {
	key, err := keyOf("--key-file", f.keyFile)
	if err != nil {
		return nil, nil, err
	}
	adminKey, err := keyOf("--admin-key-file", f.adminKeyFile)
	if err != nil {
		return nil, nil, err
	}
	if f.cert != "" || f.certKey != "" {
		loaded, err := tls.LoadX509KeyPair(f.cert, f.certKey)
		if err != nil {
			return nil, nil, usagef("--tls-cert, --tls-key: %w", err)
		}
		pair = &loaded
	}
	if !dashboard.IsLoopback(f.listen) {
		switch {
		case key == "":
			return nil, nil, usagef("--listen %s: other machines need a key: --key-file", f.listen)
		case pair == nil && !f.insecure:
			return nil, nil, usagef("--listen %s: the key would go over the network in plain text: --tls-cert and --tls-key, or --insecure behind a proxy that has TLS", f.listen)
		}
	}
	if access, err = dashboard.NewAccess(key, adminKey, pair != nil); err != nil {
		return nil, nil, usagef("--key-file, --admin-key-file: %w", err)
	}
	return access, pair, nil
}

// keyOf reads the key of a flag that names a file; no file = no key.
func keyOf(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usageError{err}
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", usagef("%s: the file has no key", flag)
	}
	return key, nil
}

func (a *app) serveDashboard(ctx context.Context, f *dashboardFlags) error {
	access, pair, err := f.access()
	if err != nil {
		return err
	}
	reader, err := a.dashboardReader(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	scheme := "http"
	if pair != nil {
		scheme = "https"
	}
	fmt.Fprintf(a.stdout, "%s://%s/\n", scheme, listener.Addr())
	page := dashboards.Page{Config: a.loaded, Servers: a.servers, Reader: reader, Access: access, Listener: listener, Log: a.log}
	if pair != nil {
		page.TLS = &tls.Config{Certificates: []tls.Certificate{*pair}, MinVersion: tls.VersionTLS12}
	}
	return page.Serve(ctx)
}

// dashboardReader reads the lanes of the configuration. It fails if Kafka cannot be
// reached or has no push.events.
func (a *app) dashboardReader(ctx context.Context) (*dashboard.Reader, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	if _, err := a.reachKafka(ctx, dashboards.Needs(c)...); err != nil {
		return nil, err
	}
	return dashboards.NewReader(c, a.servers, a.log)
}
