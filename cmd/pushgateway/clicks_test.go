package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// The examples of docs/gateway.md about clicks, as they stand there, in a shell with curl.
// Reports need no Kafka.
func TestTheExamplesAboutClicks(t *testing.T) {
	examplesAboutClicks(t, func(c *configs.Config) worker.ClickStore {
		c.Cassandra.Hosts = []string{"127.0.0.1:1"} // nothing listens there
		return clicks.NewMemory()
	})
}

// The same on a real server.
func TestTheExamplesAboutClicksOnCassandra(t *testing.T) {
	examplesAboutClicks(t, func(c *configs.Config) worker.ClickStore {
		o := keyspacetest.Make(t)
		c.Cassandra.Hosts, c.Cassandra.Keyspace = o.Hosts, o.Keyspace
		return nil
	})
}

// examplesAboutClicks runs them. store says where reports are kept; nil = in Cassandra.
func examplesAboutClicks(t *testing.T, store func(c *configs.Config) worker.ClickStore) {
	t.Helper()
	path, _ := files(t, ", clicks: {enabled: true}")
	c, err := configs.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := wiring.Signer(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TOKEN", string(signer.AppendClickToken(nil, "n-1", "u42", "shop", "news", "orders", time.Now())))
	kept := store(c)
	examplesIn(t, alone(t, worker.GatewayOptions{Config: c, Clicks: kept}), "Clicks", 3, "status_away")
}

// A configuration that cannot be meant is refused, and what is allowed and odd is told.
func TestClicksConfig(t *testing.T) {
	odd, _ := files(t, ", clicks: {enabled: true}")
	short, _ := files(t, ", clicks: {enabled: true, valid: 72h, kept: 48h}")
	none, _ := files(t, ", clicks: {rate: 0}")
	for path, want := range map[string]string{odd: "note: gateway.clicks: apps cannot report UNSUBSCRIBED", short: "gateway.clicks.kept: 48h0m0s must be at least valid", none: "gateway.clicks.rate"} {
		var out strings.Builder
		code := execute([]string{"config", "check", path}, strings.NewReader(""), &out, &out)
		if (code == exitDone) != (path == odd) || !strings.Contains(out.String(), want) {
			t.Errorf("%d: %s", code, out.String())
		}
	}
}
