//go:build unix

package chaos

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// arrivals writes down every push that the simulator decides about.
type arrivals struct {
	senders *senders

	mu       sync.Mutex
	entries  []invariants.Send // guarded by mu, as all that follows; about in order of time
	byStream map[stream]int    // those whose answer is not known to have got out
	names    map[string]string // one copy of each string
	nameless int               // pushes without an id
}

type stream struct {
	conn uint64
	id   uint32
}

func newArrivals() *arrivals {
	return &arrivals{byStream: map[stream]int{}, names: map[string]string{}}
}

// watch is sim.Options.Watch.
func (a *arrivals) watch(e *sim.Arrival) {
	if e.Provider != sim.APNS && e.Provider != sim.FCM {
		return
	}
	at := stream{e.Conn, e.Stream}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.What != sim.Decided {
		if i, ok := a.byStream[at]; ok {
			a.entries[i].Unheard = true
			a.entries[i].Undone = e.What == sim.Undone
		}
		return
	}
	if len(e.ID) == 0 {
		a.nameless++
		return
	}
	a.byStream[at] = len(a.entries)
	a.entries = append(a.entries, invariants.Send{
		Pair: invariants.Pair{ID: a.name(e.ID), Device: a.name(e.Device)}, At: e.At, Provider: e.Provider.String(),
		Worker: a.senders.of(e.Remote), Reply: e.Reply.String(), Accepted: e.Reply.Accepted(), CollapseID: a.name(collapseID(e)),
	})
}

// name keeps one copy of a string.
func (a *arrivals) name(b []byte) string {
	if s, ok := a.names[string(b)]; ok {
		return s
	}
	s := string(b)
	a.names[s] = s
	return s
}

// collapseID is what makes a repeat replace the push before: Apple's header, or
// the tag of an Android notification.
func collapseID(e *sim.Arrival) []byte {
	if e.Provider == sim.APNS {
		for _, f := range e.Request.Fields {
			if f.Name == "apns-collapse-id" {
				return []byte(f.Value)
			}
		}
		return nil
	}
	_, rest, _ := bytes.Cut(e.Request.Body, []byte(`"tag":"`))
	tag, _, _ := bytes.Cut(rest, []byte(`"`))
	return tag
}

// since returns what a worker got accepted after a moment.
func (a *arrivals) since(from time.Time, worker string) (list []invariants.Send) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Entries are in the order of the lock, which is not quite that of time.
	for i := len(a.entries) - 1; i >= 0 && a.entries[i].At.After(from.Add(-time.Second)); i-- {
		if e := &a.entries[i]; e.At.After(from) && e.Accepted && !e.Undone && e.Worker == worker {
			list = append(list, *e)
		}
	}
	return list
}

// lately counts what a worker got accepted after a moment.
func (a *arrivals) lately(from time.Time, worker string) int {
	return len(a.since(from, worker))
}

// seal compares with the simulator's own counts, which come another way.
func (a *arrivals) seal(t sim.Totals) invariants.Ledger[invariants.Send] {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := invariants.Seal(a.entries)
	accepted, unknown := 0, 0
	for i := range a.entries {
		if e := &a.entries[i]; e.Accepted && !e.Undone {
			accepted++
		}
		if a.entries[i].Worker == "" {
			unknown++
		}
	}
	switch {
	case uint64(accepted) != t.Accepted:
		l.Sealed, l.Missing = false, fmt.Sprintf("it has %d acceptances, the simulator counted %d", accepted, t.Accepted)
	case a.nameless > 0:
		l.Sealed, l.Missing = false, fmt.Sprintf("%d pushes came without an id", a.nameless)
	case unknown > 0:
		l.Sealed, l.Missing = false, fmt.Sprintf("%d pushes came from nobody knows whom", unknown)
	}
	return l
}

// first is when each worker first got a reply of a provider's, after a moment.
func (a *arrivals) first(provider string, from time.Time, reply string) map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := map[string]time.Time{}
	for i := range a.entries {
		e := &a.entries[i]
		if e.Provider != provider || e.Accepted || !e.At.After(from) || e.Reply != reply {
			continue
		}
		if at, ok := first[e.Worker]; !ok || e.At.Before(at) {
			first[e.Worker] = e.At
		}
	}
	return first
}

// tooMany are the answers of status 429 that a storm gives.
var tooMany = map[string]string{APNS: sim.APNSTooManyRequests.String(), FCM: sim.FCMProjectQuota.String()}
