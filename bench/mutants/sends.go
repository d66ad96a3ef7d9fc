//go:build unix

package mutants

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// sendLog writes down every push that the simulator decides about.
type sendLog struct {
	mu       sync.Mutex
	entries  []invariants.Send
	byStream map[[2]uint64]int // by connection and stream
}

// watch is sim.Options.Watch.
func (l *sendLog) watch(a *sim.Arrival) {
	if a.Provider != sim.APNS && a.Provider != sim.FCM {
		return
	}
	stream := [2]uint64{a.Conn, uint64(a.Stream)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.What != sim.Decided {
		if i, known := l.byStream[stream]; known {
			l.entries[i].Unheard, l.entries[i].Undone = true, a.What == sim.Undone
		}
		return
	}
	if l.byStream == nil {
		l.byStream = make(map[[2]uint64]int)
	}
	l.byStream[stream] = len(l.entries)
	l.entries = append(l.entries, invariants.Send{
		Pair: invariants.Pair{ID: string(a.ID), Device: string(a.Device)}, At: a.At, Provider: a.Provider.String(),
		Reply: a.Reply.String(), Accepted: a.Reply.Accepted(), CollapseID: collapseID(a),
	})
}

// collapseID is what makes a second push replace the first on the screen:
// Apple's header, or the tag of an Android notification.
func collapseID(a *sim.Arrival) string {
	if a.Provider == sim.APNS {
		for _, f := range a.Request.Fields {
			if f.Name == "apns-collapse-id" {
				return strings.Clone(f.Value) // it lies in the connection's buffer
			}
		}
		return ""
	}
	_, rest, _ := bytes.Cut(a.Request.Body, []byte(`"tag":"`))
	tag, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(tag)
}

// all are the pushes so far.
func (l *sendLog) all() []invariants.Send {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// seal is the ledger, unless the simulator's own counts, which come another
// way, say something else.
func (l *sendLog) seal(t sim.Totals) invariants.Ledger[invariants.Send] {
	ledger, accepted := invariants.Seal(l.all()), uint64(0)
	for _, e := range ledger.Entries {
		if e.Accepted && !e.Undone {
			accepted++
		}
	}
	if accepted != t.Accepted || t.WithoutID > 0 {
		ledger.Sealed, ledger.Missing = false, fmt.Sprintf("it has %d acceptances, the simulator counted %d and %d without an id", accepted, t.Accepted, t.WithoutID)
	}
	return ledger
}
