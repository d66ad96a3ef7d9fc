//go:build unix

package mutants

import (
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// unsure is one push that ended UNKNOWN.
type unsure struct {
	invariants.Pair
	at     time.Time // when that became durable
	intent time.Time // when its last intent before that did; zero = it had none
}

// upset is a death or a pause of a worker: what was intended until to may end
// UNKNOWN from from on.
type upset struct{ from, to time.Time }

// checkUnknown: a push may end UNKNOWN only where something was done to it. That
// a lane may have such ends does not let a worker call everything UNKNOWN.
func (w *world) checkUnknown() []Finding {
	var upsets []upset
	for _, d := range w.deaths {
		// A write that was under way when it died becomes durable a little later,
		// and one that goes on after a pause may still write an intent until its
		// commit is refused.
		u := upset{from: d.at.Add(-session), to: d.at.Add(settle)}
		if !d.resumed.IsZero() {
			u.to = d.resumed.Add(w.Config.Kafka.CommitTimeout + w.Config.Cassandra.Timeout + session)
		}
		upsets = append(upsets, u)
	}
	return unexplained(w.store.unsure(), w.sends.all(), upsets, w.cut)
}

// unexplained finds UNKNOWN ends that nothing explains: no death between the
// intent and the end, and no answer that was lost. cut says that connections were
// ended, so that a provider may never have read what was written.
func unexplained(ends []unsure, sends []invariants.Send, upsets []upset, cut bool) (found []Finding) {
	seen, unheard := make(map[invariants.Pair]bool), make(map[invariants.Pair]bool)
	for _, s := range sends {
		seen[s.Pair] = true
		if s.Unheard || s.Undone || s.Reply == sim.NoReply.String() {
			unheard[s.Pair] = true
		}
	}
	for _, e := range ends {
		explained := unheard[e.Pair] || cut && !seen[e.Pair]
		for _, u := range upsets {
			explained = explained || !e.intent.IsZero() && !e.intent.After(u.to) && !e.at.Before(u.from)
		}
		if !explained {
			found = append(found, Finding{Invariant: Lost, Text: fmt.Sprintf("%s on device %s ended UNKNOWN at %s: no answer was lost (asked: %v), and nobody died between intent and end",
				e.ID, e.Device, e.at.Format(time.StampMilli), seen[e.Pair])})
		}
	}
	return found
}

// unsure are all pushes that ended UNKNOWN.
func (s *Store) unsure() (list []unsure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, rows := range s.durable {
		for k, at := range rows {
			if k.state != push.StateUnknown {
				continue
			}
			u := unsure{Pair: invariants.Pair{ID: id, Device: k.device}, at: at}
			for other, intended := range rows {
				if other.device == k.device && other.state == push.StateSending && !intended.After(at) && intended.After(u.intent) {
					u.intent = intended
				}
			}
			list = append(list, u)
		}
	}
	return list
}
