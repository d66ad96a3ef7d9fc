package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/status"
)

// A gateway does not wait for the table of clicks: until it is there it says what is
// missing, and takes no report.
func TestTheTableOfClicksComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Gateway.Clicks.Enabled = true
		tables := &emptyTables{missing: true}
		g := &openGateway{aside: newHealth(), GatewayOptions: &GatewayOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
			OpenTables: func(context.Context, status.Options) (Tables, error) { return tables, nil }}}
		parts := g.clicksOf()
		if parts.Valid != 720*time.Hour || parts.Kept != 2160*time.Hour || parts.Rate != 1000 {
			t.Errorf("%+v", parts)
		}
		if err := parts.Store.Note(t.Context(), &clicks.Report{}); !errors.Is(err, errNotYet) {
			t.Errorf("before it is opened: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var watches sync.WaitGroup
		g.watchClicks(ctx, &watches)
		says := func(want string) {
			t.Helper()
			synctest.Wait()
			if _, lines := g.aside.report(); !strings.Contains(strings.Join(lines, "\n"), want) {
				t.Errorf("it says %q, want %q", lines, want)
			}
		}
		says("pushctl schema apply")
		tables.mu.Lock()
		tables.missing = false
		tables.mu.Unlock()
		time.Sleep(5 * time.Minute)
		says("clicks ok")
		if err := parts.Store.Note(ctx, &clicks.Report{}); err != nil {
			t.Error(err)
		}
		stop()
		watches.Wait()
		g.clicks.close()
	})
}

// Without clicks nothing is opened for them; with a store of its own neither, and nothing is
// signed without a secret.
func TestAGatewayWithoutClicks(t *testing.T) {
	c := configs.Default()
	g := &openGateway{aside: newHealth(), GatewayOptions: &GatewayOptions{Config: c, Clicks: clicks.NewMemory()}}
	var watches sync.WaitGroup
	if g.clicksOf() != nil {
		t.Error("it takes reports")
	}
	if tokens, err := clickTokens(c); tokens != nil || err != nil {
		t.Errorf("tokens without clicks: %v, %v", tokens, err)
	}
	c.Gateway.Clicks.Enabled = true
	if parts := g.clicksOf(); parts == nil || g.clicks != nil {
		t.Error("a table was opened beside the store")
	}
	g.watchClicks(t.Context(), &watches)
	watches.Wait()
	gatewayFiles(t, c)
	if tokens, err := clickTokens(c); tokens == nil || err != nil {
		t.Errorf("tokens: %v", err)
	}
	var wrong *ConfigError
	if err := os.WriteFile(c.Gateway.ReceiptsFile, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clickTokens(c); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "gateway.receipts_file") {
		t.Errorf("a secret that is too short: %v", err)
	}
}
