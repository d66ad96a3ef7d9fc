package sim

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// An observer sees each push once as it is decided, with the address it came
// from, and is told when a GOAWAY takes a decision back and when an answer is
// lost with its connection: as often as the ledger counts it.
func TestWatch(t *testing.T) {
	var mu sync.Mutex
	var seen []Arrival
	var ids []string
	w := dialWire(t, Options{
		Faults: RouteSet{APNS: Faults{Latency: time.Hour}},
		Watch: func(a *Arrival) {
			mu.Lock()
			defer mu.Unlock()
			seen, ids = append(seen, *a), append(ids, string(a.ID))
		},
	})
	count := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) >= n
		}
	}
	w.Push(`{"pf_id":"n1"}`)
	w.Push(`{"pf_id":"n2"}`)
	w.Flush()
	await(t, "two decisions", count(2))
	w.Must(w.server.Command(Command{Do: "drain", Unprocessed: 1}))
	w.Until(wiretest.Of[*http2.GoAwayFrame])
	await(t, "the second to be taken back", count(3))
	w.Must(w.Conn.Close())
	await(t, "the loss of the other answer", count(4))

	mu.Lock()
	defer mu.Unlock()
	from := w.Conn.LocalAddr().String()
	for i, want := range []struct {
		what   Arrived
		stream uint32
		id     string
	}{{Decided, 1, "n1"}, {Decided, 3, "n2"}, {Undone, 3, ""}, {Unheard, 1, ""}} {
		a := seen[i]
		if a.What != want.what || a.Stream != want.stream || ids[i] != want.id {
			t.Errorf("arrival %d: %d of stream %d with id %q, want %+v", i, a.What, a.Stream, ids[i], want)
		}
		if a.Provider != APNS || a.Reply != APNSMissingTopic || a.Conn != 1 || a.Remote == nil || a.Remote.String() != from {
			t.Errorf("arrival %d: %+v, want one of APNs from %s", i, a, from)
		}
	}
	if seen[0].Key != seen[3].Key || seen[1].Key != seen[2].Key || seen[0].Key == seen[1].Key {
		t.Error("keys do not tell what belongs together")
	}
	if got := w.server.Ledger().Totals(); got.Received != 2 || got.Dropped != 2 || got.Refused != 1 {
		t.Errorf("the ledger says %+v", got)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wiretest.Liveness); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", wiretest.Liveness, what)
		}
	}
}
