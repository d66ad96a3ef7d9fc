package client

import (
	"context"
	"testing"

	"github.com/pushfleet/pushfleet/gateway"
)

// firsts are what a gateway keeps of what it has accepted. It is used by one request at a time.
type firsts map[[16]byte]string

func (f firsts) Find(_ context.Context, names [][16]byte, found []string) []string {
	for _, name := range names {
		found = append(found, f[name])
	}
	return found
}

func (f firsts) Keep(name [16]byte, value []byte) { f[name] = string(value) }

// The first answer is lost: the repeat has the receipt that was in it, and is not written again.
func TestReplayed(t *testing.T) {
	w := newWorld(t, func(o *gateway.Options) { o.Firsts = firsts{} })
	m := message()
	got := twice(w, func() (*Accepted, error) { return w.client.Send(t.Context(), m) })
	if !got.Replayed || len(w.produced) != 1 || got.AcceptedAt.IsZero() {
		t.Errorf("%+v, produced %q", got, w.produced)
	}
	m.Title = "Another"
	if _, err := w.client.Send(t.Context(), m); err == nil || len(w.produced) != 1 {
		t.Errorf("another message with the id: %v, produced %q", err, w.produced)
	}
	other, err := w.client.Send(t.Context(), message())
	if err != nil || other.Replayed {
		t.Errorf("another one: %+v, %v", other, err)
	}
}
