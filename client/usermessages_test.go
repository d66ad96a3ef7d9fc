package client

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/journal"
)

// Messages of a user come page by page, also after a failure.
func TestUserMessages(t *testing.T) {
	store := journal.NewMemory()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i, id := range []string{"a", "b", "c"} {
		e := journal.Entry{Position: journal.Position{At: now.Add(-time.Duration(i) * time.Hour), ID: id}, User: "a/ü", App: "shop", Sender: "orders", Type: "news", Lane: "bulk"}
		if err := store.Put(t.Context(), []journal.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, func(o *gateway.Options) { o.Journal = &gateway.Journal{Store: store, Kept: 48 * time.Hour} })
	tries := 0
	w.before = func(rw http.ResponseWriter, _ *http.Request) bool {
		if tries++; tries == 1 {
			rw.WriteHeader(http.StatusBadGateway)
		}
		return tries == 1
	}
	got, err := w.client.UserMessages(t.Context(), "a/ü", UserMessagesQuery{App: "shop", Days: 2, Limit: 2})
	if err != nil || tries != 2 || len(got.Messages) != 2 || got.Next == "" || got.UserID != "a/ü" || got.Since.IsZero() {
		t.Fatalf("%+v, %v after %d attempts", got, err, tries)
	}
	if m := got.Messages[0]; m.ID != "a" || m.App != "shop" || m.SenderID != "orders" || m.Type != "news" || m.Lane != "bulk" || !m.At.Equal(now) || m.Status != "PENDING" || m.Final || m.Meaning == "" || len(m.Devices) > 0 {
		t.Errorf("%+v", m)
	}
	got, err = w.client.UserMessages(t.Context(), "a/ü", UserMessagesQuery{After: got.Next})
	if err != nil || len(got.Messages) != 1 || got.Messages[0].ID != "c" || got.Next != "" {
		t.Errorf("%+v, %v", got, err)
	}
	var p *Problem
	if _, err := w.client.UserMessages(t.Context(), "a/ü", UserMessagesQuery{App: "bank"}); !errors.As(err, &p) || p.Code != "foreign_app" {
		t.Errorf("another app: %v", err)
	}
}
