package main

import (
	"context"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/worker"
)

// written writes what the page's example shows.
func written(t *testing.T, j interface {
	Put(ctx context.Context, entries []journal.Entry) error
}, s worker.Status) {
	t.Helper()
	at := time.Now().UTC().Truncate(time.Millisecond)
	sent := journal.Entry{Position: journal.Position{At: at.Add(-time.Hour), ID: "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"}, User: "u42", App: "shop", Sender: "orders", Type: "shipping", Lane: "transactional", Kept: 168 * time.Hour}
	limited := sent
	limited.Position, limited.Type, limited.Lane = journal.Position{At: at.Add(-50 * time.Hour), ID: "0199e93b-1c2d-7a4e-8b5f-6c7d8e9f0a1b"}, "news", "promotional"
	if err := j.Put(t.Context(), []journal.Entry{limited, sent}); err != nil {
		t.Fatal(err)
	}
	user := push.UserHash("u42")
	if err := s.Write(t.Context(), []push.Row{
		{ID: sent.ID, Device: "H1uK7IedZYAmfwlt", Step: 1, State: push.StateDelivered, At: sent.At.Add(200 * time.Millisecond), Platform: push.APNS, UserHash: user},
		{ID: limited.ID, State: push.StateSuppressed, Reason: "limited:promotions-per-day", At: limited.At.Add(time.Second), UserHash: user},
	}); err != nil {
		t.Fatal(err)
	}
}

// withJournal is a configuration with a lane whose messages are found by user.
func withJournal(t *testing.T) *configs.Config {
	t.Helper()
	path, _ := files(t, "")
	c, err := configs.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Lanes[0].Journal = 168 * time.Hour
	return c
}

const messagesOfUser = "Messages of a user"

// The example of docs/gateway.md about messages of a user, as it stands there, in a shell with
// curl.
func TestTheExampleAboutMessagesOfAUser(t *testing.T) {
	c := withJournal(t)
	c.Cassandra.Hosts = []string{"127.0.0.1:1"} // nothing listens there
	rows, err := openMemory()
	if err != nil {
		t.Fatal(err)
	}
	kept := journal.NewMemory()
	written(t, kept, rows)
	examplesIn(t, alone(t, worker.GatewayOptions{Config: c, Journal: kept, OpenStatus: func(context.Context, status.Options) (worker.Status, error) { return rows, nil }}), messagesOfUser, 1, "status_away")
}

// The same on a real server.
func TestTheExampleAboutMessagesOfAUserOnCassandra(t *testing.T) {
	c := withJournal(t)
	o := keyspacetest.Make(t)
	c.Cassandra.Hosts, c.Cassandra.Keyspace = o.Hosts, o.Keyspace
	rows, err := status.OpenCassandra(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	session, err := status.OpenSession(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	written(t, journal.New(journal.Options{Tables: session}), rows)
	examplesIn(t, alone(t, worker.GatewayOptions{Config: c}), messagesOfUser, 1, "status_away")
}
