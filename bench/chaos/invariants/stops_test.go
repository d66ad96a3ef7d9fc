package invariants

import (
	"strings"
	"testing"
	"time"
)

// stopped is a run in which w1 is told to end at 1 s and has ended at 2 s, and
// what it pushed at 0.9 s comes again from w2 at 3 s.
func stopped() *Ledgers {
	l := clean()
	first, again := accept("a", "1", 900), accept("a", "1", 3000)
	again.Worker = "w2"
	l.Producer.Entries[0].Deadline = time.Time{}
	l.Sends.Entries[0] = first
	l.Sends.Entries = append(l.Sends.Entries, again)
	l.Events = []Event{{Kind: "stop", Target: "w1", Of: "w1", Orderly: true, Start: at(1000), End: at(2000)}}
	return l
}

// An orderly stop leaves nothing to be sent again; what excuses a repeat is a
// fault that kept an answer or a row from that worker, and nothing else.
func TestStopsRepeatNothing(t *testing.T) {
	event := func(e Event) func(*Ledgers) { return func(l *Ledgers) { l.Events = append(l.Events, e) } }
	for _, tt := range []struct {
		why    string
		change func(*Ledgers)
		broken bool
	}{
		{"nothing else happened", func(*Ledgers) {}, true},
		{"the bound of another event has room for it", event(Event{Kind: "kill", Target: "w2", Of: "w2", Start: at(2500), End: at(2500), Repeats: 5}), true},
		{"Redis stalled", event(Event{Kind: "pause", Target: "redis", Start: at(800), End: at(2500), Stalls: true}), true},
		{"the stop itself may repeat by the other promise", func(l *Ledgers) { l.Events[0].Repeats = 5 }, true},
		{"it was killed besides", event(Event{Kind: "kill", Target: "w1", Of: "w1", Start: at(2000), End: at(2000), Repeats: 5}), false},
		{"its way to the providers was cut", event(Event{Kind: "cut", Target: "providers of w1", Of: "w1", Start: at(950), End: at(950), Repeats: 5}), false},
		{"the way of another was cut", event(Event{Kind: "cut", Target: "providers of w2", Of: "w2", Start: at(950), End: at(950), Repeats: 5}), true},
		{"the provider went down", event(Event{Kind: "down", Target: "apns", Start: at(950), End: at(1500), Repeats: 5}), false},
		{"rows could not be written", event(Event{Kind: "pause", Target: "cassandra", Start: at(950), End: at(2500), Stalls: true, Unrecordable: true}), false},
		{"rows could not be written long after", event(Event{Kind: "pause", Target: "cassandra", Start: at(8000), End: at(9000), Stalls: true, Unrecordable: true}), true},
		{"the answer did not get out", func(l *Ledgers) { l.Sends.Entries[0].Unheard = true }, false},
		{"the provider took the first back", func(l *Ledgers) { l.Sends.Entries[0].Undone = true }, false},
		{"the first was another worker's", func(l *Ledgers) { l.Sends.Entries[0].Worker = "w3" }, false},
		{"both came before the stop", func(l *Ledgers) { l.Sends.Entries[4].At = at(950) }, false},
		{"the worker was started again and pushed then", func(l *Ledgers) { l.Sends.Entries[0].At = at(3500); l.Sends.Entries[4].At = at(3800) }, false},
	} {
		l := stopped()
		tt.change(l)
		r := Check(l)
		if (r.Violations[Stops] > 0) != tt.broken {
			t.Errorf("%s: %d broken, want %v: %v", tt.why, r.Violations[Stops], tt.broken, r.Err())
		}
		if tt.broken && !strings.Contains(strings.Join(r.Findings[Stops], ""), "w1") {
			t.Errorf("%s: %q does not name the worker", tt.why, r.Findings[Stops])
		}
	}
}

func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		why    string
		change func(*Ledgers)
		broken Invariant // empty: nothing is
		says   string
	}{
		{"as much as printed", func(l *Ledgers) { l.Exposures.Entries[0].Exposed = 3 }, "", ""},
		{"more than printed", func(l *Ledgers) { l.Exposures.Entries[0].Exposed = 4 }, Bound, "4 pushes of w1"},
		{"nothing printed", func(l *Ledgers) { l.Exposures.Entries[0].Bound = 0 }, Bound, "printed no bound"},
		{"printed as configured", func(l *Ledgers) { l.Limits.Windows = 3 }, "", ""},
		{"another bound than configured", func(l *Ledgers) { l.Limits.Windows = 2 }, Bound, "its windows hold 2"},
		{"more memory than printed", func(l *Ledgers) { l.Exposures.Entries[0].Bytes = 401 << 20 }, Memory, "401 MiB"},
		{"as much memory as printed", func(l *Ledgers) { l.Exposures.Entries[0].Bytes = 400 << 20 }, "", ""},
		{"nobody looked", func(l *Ledgers) { l.Exposures = Seal[Exposure](nil) }, Incomplete, "nobody looked"},
		{"not sealed", func(l *Ledgers) { l.Exposures.Sealed, l.Exposures.Missing = false, "it was away" }, Incomplete, "it was away"},
		{"nobody was to look", func(l *Ledgers) { l.Exposures, l.Limits.Unobserved = Ledger[Exposure]{}, []Invariant{Bound} }, "", ""},
	} {
		l := clean()
		tt.change(l)
		r := Check(l)
		switch {
		case tt.broken == "" && !r.Clean():
			t.Errorf("%s: %v", tt.why, r.Err())
		case tt.broken != "" && (r.Violations[tt.broken] == 0 || !strings.Contains(strings.Join(r.Findings[tt.broken], ""), tt.says)):
			t.Errorf("%s: %v, want %s with %q", tt.why, r.Err(), tt.broken, tt.says)
		}
	}
}

// A row tells of a push if it says DELIVERED, or was written since; an intent
// does not, and neither does what another device or an earlier attempt came to.
func TestCovered(t *testing.T) {
	for _, tt := range []struct {
		why  string
		rows []Row
		want bool
	}{
		{"no row", nil, false},
		{"delivered", []Row{row("a", "1", 0, Delivered, 120)}, true},
		{"delivered before: a repeat", []Row{row("a", "1", 0, Delivered, 50)}, true},
		{"handed over since", []Row{row("a", "1", 0, Retrying, 120)}, true},
		{"an earlier attempt", []Row{row("a", "1", 0, Retrying, 50)}, false},
		{"an intent", []Row{row("a", "1", 0, Sending, 120)}, false},
		{"another device", []Row{row("a", "2", 0, Delivered, 120)}, false},
	} {
		if got := Covered(tt.rows, "1", at(100)); got != tt.want {
			t.Errorf("%s: %v", tt.why, got)
		}
	}
}
