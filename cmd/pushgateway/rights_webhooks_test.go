package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/rightstest"
	"github.com/pushfleet/pushfleet/worker"
)

// webhooks tells a sender of an end, and keeps what cannot be told.
func (w *rightsWorld) webhooks() {
	t, c := w.t, rightstest.As(w.t, w.config, string(wiring.Webhooks))
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) }))
	defer endpoint.Close()
	c.Gateway.Webhooks.File = filepath.Join(t.TempDir(), "webhooks.json")
	file := fmt.Appendf(nil, `{"webhooks": [{"sender": "orders", "url": %q, "secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}]}`, endpoint.URL)
	if err := os.WriteFile(c.Gateway.Webhooks.File, file, 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := wiring.Kafka(rightstest.As(t, w.config, "admin"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	writer, err := kafka.NewWriter(options, kafka.WriterOptions{Topic: kafka.WebhooksTopic("orders")})
	if err != nil {
		t.Fatal(err)
	}
	err = writer.Append(t.Context(), []kafka.Record{{Key: []byte("n1"), Value: []byte("{}")}, {Key: []byte("n2"), Value: []byte("no JSON")}})
	writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	u := rightstest.NoteUses(w.cluster, append(wiring.Topics(c), wiring.FanoutTopics(c)...), w.former)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	roots := x509.NewCertPool()
	roots.AddCert(endpoint.Certificate())
	running.Go(func() {
		o := worker.WebhooksOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Roots: roots, CheckAddress: func(netip.Addr) error { return nil }}
		if err := worker.RunWebhooks(ctx, o); ctx.Err() == nil {
			t.Errorf("the webhooks ended: %v", err)
		}
	})
	u.Await(t, w.rights, wiring.Webhooks)
}
