package invariants

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// still is a clean run in which main0 of w1 has stood still for 4 s, from the
// start on, where one second is allowed, and with an event that excuses that
// for the promise that knows of no partitions.
func still(events ...Event) *Ledgers {
	l := clean()
	sampled(l, 0, func(s *Sample) {
		if s.Committed = 0; s.At.Equal(at(4000)) {
			s.Committed = 5
		}
	})
	l.Limits.Heal = 500 * time.Millisecond
	l.Events = events
	l.Events = append(l.Events, Event{Kind: "down", Target: "fcm", Start: at(0), End: at(4000), Stalls: true})
	return l
}

func says(worker, reason string, since, until int) Declared {
	return Declared{At: at(until), Worker: worker, Partition: main0, Reason: reason, Since: at(since)}
}

// A partition may stand still for what its own worker says, or for what keeps
// that one from saying it.
func TestReasonsOfPartitions(t *testing.T) {
	const enough = 3100 // of 4,000 ms, so that less than one second is left
	stall := func(kind, target string) Event {
		return Event{Kind: kind, Target: target, Start: at(0), End: at(enough), Stalls: true}
	}
	store := stall("pause", "cassandra")
	store.Bars = true
	mute := func(of string) Event {
		e := stall("pause", of)
		e.Of, e.Mute = of, true
		return e
	}
	said := func(d ...Declared) func(*Ledgers) { return func(l *Ledgers) { l.Declared = Seal(d) } }
	owners := func(o ...Owner) func(*Ledgers) { return func(l *Ledgers) { l.Owners = Seal(o) } }
	nothing := func(*Ledgers) {}
	for _, tt := range []struct {
		why    string
		l      *Ledgers
		change func(*Ledgers)
		broken bool
	}{
		{"nobody says why", still(), nothing, true},
		{"its worker says so", still(), said(says("w1", "status", 0, enough)), false},
		{"its worker says so, with a gap", still(), said(says("w1", "status", 0, 1500), says("w1", "confirm", 1600, enough)), false},
		{"for a part of the time only", still(), said(says("w1", "status", 0, 2900)), true},
		{"another worker says so", still(), said(says("w2", "status", 0, enough)), true},
		{"it says so of another partition", still(), func(l *Ledgers) {
			d := says("w1", "route_paused", 0, enough)
			d.Partition.ID = 1
			l.Declared = Seal([]Declared{d})
		}, true},
		{"a queue is no reason", still(), said(says("w1", "back_pressure", 0, 4000), says("w1", "others_back_pressure", 0, 4000), says("w1", "previous_owner", 0, 4000)), true},
		{"of what was its own before", still(), func(l *Ledgers) {
			said(says("w1", "status", 0, 2000), says("w2", "status", 2100, 4000))(l)
			owners(Owner{at(-1000), main0, "w1"}, Owner{at(2050), main0, "w2"})(l)
		}, false},
		{"nobody knows whose it is", still(), func(l *Ledgers) { said(says("w1", "status", 0, 4000))(l); l.Owners.Entries[0].Partition.ID = 7 }, true},

		{"its worker was stopped", still(mute("w1")), nothing, false},
		{"its worker was stopped for a part, and healed", still(func() Event { e := mute("w1"); e.End = at(2600); return e }()), nothing, false},
		{"and healed for long", still(func() Event { e := mute("w1"); e.End = at(2300); return e }()), nothing, true},
		{"another one was stopped", still(mute("w2")), nothing, true},
		{"a worker was stopped when it had the partition", still(mute("w2")),
			owners(Owner{at(-1000), main0, "w1"}, Owner{at(1000), main0, "w2"}, Owner{at(1500), main0, "w1"}), false},
		{"nobody could commit", still(Event{Kind: "pause", Target: "kafka", Start: at(0), End: at(enough), Mute: true}), nothing, false},
		{"a provider was away, and it was nobody's", still(), owners(Owner{at(-1000), main0, ""}), true},
		{"a store was away, and its worker could say so", still(store), nothing, true},
		{"a store was away, and it was nobody's", still(store), owners(Owner{at(-1000), main0, "w1"}, Owner{at(-1), main0, ""}), false},
		{"a store was away, and it was nobody's for a part", still(store),
			owners(Owner{at(-1000), main0, "w1"}, Owner{at(-1), main0, ""}, Owner{at(1500), main0, "w2"}), true},

		{"nobody looked, and that is declared", still(), func(l *Ledgers) {
			l.Owners, l.Declared, l.Limits.Unobserved = Ledger[Owner]{}, Ledger[Declared]{}, []Invariant{Reasons}
		}, false},
	} {
		tt.change(tt.l)
		r := Check(tt.l)
		if n := r.Violations[Reasons]; (n > 0) != tt.broken || r.Violations[I7] > 0 {
			t.Errorf("%s: %d broken, want %v: %v", tt.why, n, tt.broken, r.Err())
		}
		if tt.broken && !strings.Contains(strings.Join(r.Findings[Reasons], ""), "push.main/0, of") {
			t.Errorf("%s: %v", tt.why, r.Findings[Reasons])
		}
	}
}

// What nobody has looked at, or not to the end, is a finding.
func TestReasonsFailClosed(t *testing.T) {
	for why, change := range map[string]func(*Ledgers){
		"owners is not sealed: it was away": func(l *Ledgers) { l.Owners = Ledger[Owner]{Missing: "it was away"} },
		"owners is empty":                   func(l *Ledgers) { l.Owners = Seal[Owner](nil) },
		"declared reasons is not sealed":    func(l *Ledgers) { l.Declared.Sealed = false },
	} {
		l := clean()
		change(l)
		if r := Check(l); !slices.ContainsFunc(r.Findings[Incomplete], func(s string) bool { return strings.Contains(s, why) }) {
			t.Errorf("%q is not found: %v", why, r.Err())
		}
	}
}
