//go:build unix

package chaos

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// The simulator's ledger has what was decided, by whom it was sent, and what
// became of the decision.
func TestArrivals(t *testing.T) {
	a := newArrivals()
	a.senders = &senders{ports: map[string]string{}}
	one, two := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}
	a.senders.note("worker 1")(one)
	a.senders.note("worker 2")(two)
	began := time.Now()
	apple := &sim.Request{Fields: []sim.Field{{Name: "apns-collapse-id", Value: "c1"}}}
	google := &sim.Request{Body: []byte(`{"message":{"android":{"notification":{"tag":"c2"}}}}`)}
	push := func(conn uint64, stream uint32, from net.Addr, p sim.Provider, r sim.Reply, id string, req *sim.Request) {
		a.watch(&sim.Arrival{At: began, Conn: conn, Stream: stream, Remote: from, Provider: p, Reply: r, ID: []byte(id), Device: []byte("d"), Request: req})
	}
	push(1, 1, one, sim.APNS, sim.APNSAccepted, "n1", apple)
	push(1, 3, one, sim.APNS, sim.APNSAccepted, "n2", apple)
	push(2, 1, two, sim.FCM, sim.FCMAccepted, "n3", google)
	push(2, 3, two, sim.FCM, sim.FCMProjectQuota, "n4", google)
	push(2, 5, two, sim.OAuth, sim.OAuthGranted, "", google)
	a.watch(&sim.Arrival{What: sim.Undone, Conn: 1, Stream: 3, Provider: sim.APNS})
	a.watch(&sim.Arrival{What: sim.Unheard, Conn: 2, Stream: 1, Provider: sim.FCM})

	l := a.seal(sim.Totals{Accepted: 2})
	if !l.Sealed || len(l.Entries) != 4 {
		t.Fatalf("%+v", l)
	}
	for i, want := range []invariants.Send{
		{Worker: "worker 1", Accepted: true, CollapseID: "c1"},
		{Worker: "worker 1", Accepted: true, CollapseID: "c1", Unheard: true, Undone: true},
		{Worker: "worker 2", Accepted: true, CollapseID: "c2", Unheard: true},
		{Worker: "worker 2", CollapseID: "c2"},
	} {
		got := l.Entries[i]
		if got.Worker != want.Worker || got.Accepted != want.Accepted || got.CollapseID != want.CollapseID || got.Unheard != want.Unheard || got.Undone != want.Undone {
			t.Errorf("push %d: %+v, want %+v", i, got, want)
		}
	}
	if list := a.since(began.Add(-time.Millisecond), "worker 1"); len(list) != 1 || list[0].ID != "n1" {
		t.Errorf("accepted of worker 1: %v", list)
	}
	if n, none := a.lately(began.Add(-time.Millisecond), "worker 1"), a.lately(began, "worker 1"); n != 1 || none != 0 {
		t.Errorf("lately accepted of worker 1: %d, and %d after that", n, none)
	}
	if first := a.first(FCM, began.Add(-time.Second), tooMany[FCM]); len(first) != 1 || !first["worker 2"].Equal(began) {
		t.Errorf("told that it is too much: %v", first)
	}
	if l := a.seal(sim.Totals{Accepted: 3}); l.Sealed || !strings.Contains(l.Missing, "2 acceptances") {
		t.Errorf("the simulator counted another number: %+v", l)
	}
	push(3, 1, nil, sim.APNS, sim.APNSAccepted, "n5", apple)
	if l := a.seal(sim.Totals{Accepted: 3}); l.Sealed || !strings.Contains(l.Missing, "nobody knows whom") {
		t.Errorf("a push of nobody: %+v", l)
	}
	push(1, 5, one, sim.APNS, sim.APNSAccepted, "", apple)
	if l := a.seal(sim.Totals{Accepted: 3}); l.Sealed || !strings.Contains(l.Missing, "without an id") {
		t.Errorf("a push without id: %+v", l)
	}
}

// Tokens and text are found wherever they stand, and named without themselves.
func TestCanaries(t *testing.T) {
	token := strings.Repeat("0a1b2c3d", 8)
	c := &canaries{tokens: map[string]bool{token: true}}
	c.search("a log", `{"msg":"drained","device":"Qx0aB3dE5fG7hJ9k","sum":"`+strings.Repeat("f", 64)+`"}`)
	if len(c.leaks) > 0 {
		t.Fatalf("nothing to find: %v", c.leaks)
	}
	c.search("a log", `{"path":"/3/device/`+token+`"}`)
	c.search("a metric", `x{title="Order 7 is on its way"}`)
	c.headers("push.dlq", []kgo.RecordHeader{{Key: "pf-reason", Value: []byte(token)}})
	c.rows([]invariants.Row{{Reason: token}})
	if len(c.leaks) != 4 {
		t.Errorf("%d found, want 4: %v", len(c.leaks), c.leaks)
	}
	for _, leak := range c.leaks {
		if strings.Contains(leak.Where, token) || strings.Contains(leak.Where, "on its way") {
			t.Errorf("the finding tells the canary: %s", leak.Where)
		}
	}
}
