package invariants

import (
	"strings"
	"testing"
	"time"
)

func attempt(gateway string, from, to, status int, id string) Attempt {
	return Attempt{Gateway: gateway, From: at(from), To: at(to), Status: status, ID: id}
}

// called is the clean run with gateways before it: "a" is a fan-out's for the one who is
// subscribed, and came twice, as a process of fan-outs was killed; another has left. "b", "c"
// and "d" were sent by calls, "b" with an id that the gateway derived, and a fourth call was
// refused.
func called() *Ledgers {
	l := clean()
	l.Limits.Gateways, l.Limits.Answer, l.Limits.Heal = 2, time.Second, 100*time.Millisecond
	e := l.Producer.Entries
	e[0].Call, e[0].User, e[4].Call, e[4].User = "f1", "u1", "f1", "u1"
	e[1].Call, e[2].Call, e[3].Call = "c1", "c2", "c3"
	l.Calls = Seal([]Call{
		{Name: "c1", Sent: []Attempt{attempt("gateway 1", -200, -100, 0, ""), attempt("gateway 2", -90, 0, 202, "b")}, Told: &Told{"b", "DELIVERED", Outcome(Delivered), true}},
		{Name: "c2", ID: "c", Sent: []Attempt{attempt("gateway 1", -50, 0, 202, "c")}, Told: &Told{"c", "FAILED", Outcome(DeadLettered), true}},
		{Name: "c3", ID: "d", Sent: []Attempt{{Gateway: "gateway 1", From: at(-800), To: at(-50), Status: 503, Why: "unconfirmed"}, attempt("gateway 1", -40, 0, 202, "d")}, Told: &Told{"d", "FAILED", Outcome(Suppressed), true}},
		{Name: "c4", ID: "e", Invalid: "names no app", Sent: []Attempt{attempt("gateway 2", 0, 10, 403, "")}},
	})
	l.Fanouts = Seal([]Fanout{{Name: "f1", Sent: []Attempt{attempt("gateway 1", -100, -90, 202, "f")}, Ended: at(2500), State: "ended", Emitted: 1, Skipped: 1}})
	l.Changes = Seal([]Change{{User: "u1", From: at(-1000), To: at(-990)}, {User: "u2", From: at(-1000), To: at(-990)}, {User: "u2", Leaves: true, From: at(-500), To: at(-490)}})
	l.Events = []Event{{Kind: "kill", Target: "fan-out 1", Of: "fan-out 1", Start: at(50), End: at(50), Again: 1}}
	return l
}

// replayed is an attempt that was answered with an earlier one's receipt.
func replayed(a Attempt) Attempt {
	a.Replayed = true
	return a
}

// serving is a time in which a store is away that gateways need not to send.
func serving(from, to int) Event {
	return Event{Kind: "kill", Target: "cassandra", Start: at(from), End: at(to), Serves: true}
}

// extra adds a record to the end of the lane, of a call.
func extra(l *Ledgers, id, call string, copied bool) {
	l.Producer.Entries = append(l.Producer.Entries, Produced{ID: id, Partition: main0, Offset: 5, At: at(0), Call: call, Copy: copied})
	sampled(l, 0, func(s *Sample) { s.End = 6 })
	sampled(l, 1000, func(s *Sample) { s.Committed = 6 })
}

// Every promise of gateways and fan-outs that is broken is found, and what is allowed is not.
func TestGatewaysAreJudged(t *testing.T) {
	calls := func(l *Ledgers, i int) *Call { return &l.Calls.Entries[i] }
	for _, tt := range []struct {
		why    string
		change func(*Ledgers)
		broken Invariant // empty: nothing is
		says   string
	}{
		{"nothing is wrong", func(*Ledgers) {}, "", ""},
		{"calls are not sealed", func(l *Ledgers) { l.Calls.Sealed = false }, Incomplete, "calls is not sealed"},
		{"a call is there twice", func(l *Ledgers) { l.Calls.Entries = append(l.Calls.Entries, *calls(l, 3)) }, Incomplete, "has c4 twice"},
		{"there are no gateways", func(l *Ledgers) { l.Calls, l.Limits.Gateways = Ledger[Call]{}, 0 }, "", ""},

		{"what was answered 202 is not in the lane", func(l *Ledgers) { l.Producer.Entries[1].Call = "f1" }, Durable, "c1 was answered 202 1 times, and has 0 records"},
		{"two answers and one record", func(l *Ledgers) { calls(l, 1).Sent = append(calls(l, 1).Sent, attempt("gateway 2", 10, 20, 202, "c")) }, Durable, "2 times, and has 1"},
		{"more records than attempts", func(l *Ledgers) { extra(l, "c", "c2", true) }, Durable, "c2 has 2 records in the lane, of 1 attempts"},
		{"one of them was refused", func(l *Ledgers) {
			extra(l, "c", "c2", true)
			calls(l, 1).Sent = append(calls(l, 1).Sent, attempt("gateway 2", 10, 20, 422, ""))
		}, Durable, "of 2 attempts of which 1 were refused"},
		{"one of them had the receipt of the other", func(l *Ledgers) {
			calls(l, 1).Sent = append(calls(l, 1).Sent, replayed(attempt("gateway 2", 10, 20, 202, "c")))
		}, "", ""},
		{"it was written all the same", func(l *Ledgers) {
			extra(l, "c", "c2", true)
			calls(l, 1).Sent = append(calls(l, 1).Sent, replayed(attempt("gateway 2", 10, 20, 202, "c")))
		}, Durable, "of 2 attempts of which 0 were refused and 1 wrote nothing"},
		{"the receipt is of nothing in the lane", func(l *Ledgers) {
			l.Producer.Entries[1].Call = "f1"
			calls(l, 0).Sent[1].Replayed = true
		}, Durable, "c1 was answered with an earlier receipt 1 times, and has no record"},
		{"its attempt was accepted before", func(l *Ledgers) { calls(l, 3).Sent[0].Status, calls(l, 3).Sent[0].Replayed = 202, true }, Refused, "c4, which names no app, was answered 202 1 times"},
		{"one of them was not answered", func(l *Ledgers) {
			extra(l, "c", "c2", true)
			calls(l, 1).Sent = append(calls(l, 1).Sent, attempt("gateway 2", 10, 20, 0, ""))
		}, "", ""},
		{"nobody sent a record", func(l *Ledgers) { l.Producer.Entries[3].Call = "" }, Durable, "nobody sent it"},

		{"what no gateway may take was accepted", func(l *Ledgers) { calls(l, 3).Sent[0].Status, calls(l, 3).Told = 202, &Told{} }, Refused, "c4, which names no app, was answered 202"},
		{"it is in the lane", func(l *Ledgers) { l.Producer.Entries[1].Call = "c4" }, Refused, "has 1 records in the lane"},
		{"what was refused was pushed", func(l *Ledgers) { calls(l, 3).Invalid = ""; calls(l, 3).ID = "a" }, Refused, "c4 was refused, and was pushed"},
		{"it has a row", func(l *Ledgers) { calls(l, 3).Invalid = ""; calls(l, 3).ID = "d" }, Refused, "or has rows"},

		{"a repeat has another id", func(l *Ledgers) {
			calls(l, 0).Sent[0] = attempt("gateway 1", -200, -100, 202, "other")
			extra(l, "b", "c1", true)
		}, Receipts, "c1 has the ids [b other]"},
		{"the answer has another id than the sender's", func(l *Ledgers) { calls(l, 1).Sent[0].ID = "other" }, Receipts, "[c other]"},
		{"the record has", func(l *Ledgers) { calls(l, 2).ID, calls(l, 2).Sent[1].ID = "x", "x" }, Receipts, "c3 has the ids [d x]"},
		{"nobody says what became of it", func(l *Ledgers) { calls(l, 1).Told = nil }, Receipts, "nobody says"},
		{"the receipt is another one's", func(l *Ledgers) { calls(l, 1).Told.ID = "d" }, Receipts, "is about d"},
		{"the receipt says another state", func(l *Ledgers) { calls(l, 1).Told.State = Outcome(Failed) }, Receipts, "receipt of c2 says FAILED, FAILED"},
		{"another status", func(l *Ledgers) { calls(l, 0).Told.Status = "FAILED" }, Receipts, "receipt of c1 says FAILED, DELIVERED"},
		{"that it is not over", func(l *Ledgers) { calls(l, 0).Told.Final = false }, Receipts, "final false"},

		{"an answer comes too late", func(l *Ledgers) { calls(l, 2).Sent[0].From = at(-1100) }, Answers, "answered 503 unconfirmed after 1.05s, more than 1s"},
		{"its gateway was stopped meanwhile", func(l *Ledgers) {
			calls(l, 2).Sent[0].From = at(-1100)
			l.Events = append(l.Events, Event{Kind: "pause", Target: "gateway 1", Of: "gateway 1", Start: at(-1000), End: at(-900), Stands: true})
		}, "", ""},
		{"another one was", func(l *Ledgers) {
			calls(l, 2).Sent[0].From = at(-1100)
			l.Events = append(l.Events, Event{Kind: "pause", Target: "gateway 2", Of: "gateway 2", Start: at(-1000), End: at(-900), Stands: true})
		}, Answers, "more than 1s"},
		{"the last attempt has no answer", func(l *Ledgers) {
			calls(l, 3).Sent[0].Status = 0
		}, Answers, "c4 has no answer for good after 1"},
		{"nothing was away that it needs", func(l *Ledgers) { l.Events = append(l.Events, serving(-900, -10)) }, Answers, "answered 503 unconfirmed by gateway 1"},
		{"it was busy", func(l *Ledgers) {
			calls(l, 2).Sent[0].Why = "busy"
			l.Events = append(l.Events, serving(-900, -10))
		}, "", ""},
		{"its gateway was killed as well", func(l *Ledgers) {
			l.Events = append(l.Events, serving(-900, -10), Event{Kind: "kill", Target: "gateway 1", Of: "gateway 1", Start: at(-500), End: at(-500)})
		}, "", ""},
		{"Kafka had just come back", func(l *Ledgers) {
			l.Events = append(l.Events, serving(-900, -10), Event{Kind: "kill", Target: "kafka", Start: at(-2000), End: at(-820)})
		}, "", ""},

		{"fan-outs are not sealed", func(l *Ledgers) { l.Fanouts.Sealed = false }, Incomplete, "fan-outs is not sealed"},
		{"changes are not", func(l *Ledgers) { l.Changes.Sealed = false }, Incomplete, "fan-outs is not sealed"},
		{"a repeat of one has another id", func(l *Ledgers) {
			l.Fanouts.Entries[0].Sent = append(l.Fanouts.Entries[0].Sent, attempt("gateway 2", -80, -70, 202, "g"))
		}, Receipts, "f1 has the ids [f g]"},
		{"one has not ended", func(l *Ledgers) { l.Fanouts.Entries[0].Ended = time.Time{} }, Fanned, "has not ended"},
		{"one was cancelled", func(l *Ledgers) { l.Fanouts.Entries[0].State = "cancelled" }, Fanned, `says "cancelled"`},
		{"a subscriber has no notification", func(l *Ledgers) { l.Changes.Entries[2].Leaves = false }, Fanned, "no notification for u2"},
		{"one who left has", func(l *Ledgers) { l.Producer.Entries[3].Call, l.Producer.Entries[3].User = "f1", "u2" }, Fanned, "u2, who was not subscribed"},
		{"one who never came has", func(l *Ledgers) { l.Producer.Entries[3].Call, l.Producer.Entries[3].User = "f1", "u9" }, Fanned, "u9, who never subscribed"},
		{"who left meanwhile may have", func(l *Ledgers) { l.Changes.Entries[2].To = at(-95) }, "", ""},
		{"who left and came back later has none", func(l *Ledgers) {
			l.Changes.Entries = append(l.Changes.Entries, Change{User: "u2", From: at(-80), To: at(-70)})
		}, "", ""},
		{"who came back before should have", func(l *Ledgers) {
			l.Changes.Entries = append(l.Changes.Entries, Change{User: "u2", From: at(-300), To: at(-200)})
		}, Fanned, "no notification for u2"},
		{"one has two", func(l *Ledgers) { l.Producer.Entries[3].Call, l.Producer.Entries[3].User = "f1", "u1" }, Fanned, "several notifications for u1"},
		{"its device got nothing", func(l *Ledgers) { l.Sends.Entries[0].Accepted = false }, Fanned, "was not pushed to device 1 of u1"},
		{"records came again for no reason", func(l *Ledgers) { l.Events[0].Again = 0 }, Fanned, "1 records of fan-outs are in the lane again"},
		{"too few are counted", func(l *Ledgers) { l.Fanouts.Entries[0].Emitted, l.Fanouts.Entries[0].Skipped = 0, 2 }, Fanned, "0 were emitted, and 1 have"},
		{"too many are", func(l *Ledgers) { l.Fanouts.Entries[0].Emitted, l.Fanouts.Entries[0].Skipped = 2, 0 }, Fanned, "2 were emitted, and 1 have"},
		{"who left later is counted as left", func(l *Ledgers) {
			l.Changes.Entries = append(l.Changes.Entries, Change{User: "u1", Leaves: true, From: at(500), To: at(510)})
			l.Fanouts.Entries[0].Emitted, l.Fanouts.Entries[0].Skipped = 0, 2
		}, "", ""},
		{"somebody is not counted", func(l *Ledgers) { l.Fanouts.Entries[0].Skipped = 0 }, Fanned, "1 were emitted and 0 skipped, and the topic has 2 to 2"},
		{"somebody is counted twice", func(l *Ledgers) { l.Fanouts.Entries[0].Skipped = 2 }, Fanned, "the topic has 2 to 2"},
		{"who came meanwhile may be counted", func(l *Ledgers) {
			l.Changes.Entries = append(l.Changes.Entries, Change{User: "u3", From: at(500), To: at(510)})
			l.Fanouts.Entries[0].Skipped = 2
		}, "", ""},
	} {
		l := called()
		tt.change(l)
		r := Check(l)
		switch {
		case tt.broken == "":
			if err := r.Err(); err != nil {
				t.Errorf("%s: %v", tt.why, err)
			}
		case r.Violations[tt.broken] == 0:
			t.Errorf("%s: %s is not broken: %v", tt.why, tt.broken, r.Err())
		case !strings.Contains(strings.Join(r.Findings[tt.broken], "\n"), tt.says):
			t.Errorf("%s: %q does not say %q", tt.why, r.Findings[tt.broken], tt.says)
		}
	}
}

// What gateways were asked is counted by what they answered.
func TestCallsAreCounted(t *testing.T) {
	l := called()
	l.Calls.Entries[0].Sent = append([]Attempt{attempt("gateway 1", -300, -290, 429, "")}, l.Calls.Entries[0].Sent...)
	r := Check(l)
	want := CallReport{Calls: 4, Attempts: 7, Accepted: 3, Refused: 1, Busy: 1, Away: 1, Unheard: 1, Fanouts: 1, Audience: 2, Emitted: 1, Again: 1}
	if r.Calls != want || r.Worst.Answer != 750*time.Millisecond {
		t.Errorf("%+v and %v, want %+v", r.Calls, r.Worst.Answer, want)
	}
}
