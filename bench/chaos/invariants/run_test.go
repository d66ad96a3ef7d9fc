package invariants

import (
	"slices"
	"testing"
	"time"
)

var (
	began = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	main0 = Partition{"push.main", 0}
	retry = Partition{"push.main.retry.30s", 0}
)

// at is a moment of the run, in milliseconds from its start.
func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

func row(id, device string, step int, s State, ms int) Row {
	return Row{Pair: Pair{id, device}, Step: step, State: s, At: at(ms)}
}

func accept(id, device string, ms int) Send {
	return Send{Pair: Pair{id, device}, At: at(ms), Provider: "apns", Worker: "w1", Reply: "ok", Accepted: true, CollapseID: "c" + id}
}

func refuse(id, device string, ms int) Send {
	s := accept(id, device, ms)
	s.Accepted, s.Reply = false, "unavailable"
	return s
}

// clean is a run of four seconds without fault: "a" goes to two devices, and
// came twice; "b" needs a second attempt, "c" cannot be used, and nobody may
// push "d". The last record is read and committed at 2 s.
func clean() *Ledgers {
	produced := func(offset int64, id string) Produced {
		return Produced{ID: id, Partition: main0, Offset: offset, At: at(0)}
	}
	a, b, c, d, again := produced(0, "a"), produced(1, "b"), produced(2, "c"), produced(3, "d"), produced(4, "a")
	a.Devices, a.Outcomes = []string{"1", "2"}, []Outcome{Outcome(Delivered)}
	a.Deadline, c.Outcomes = at(3000), []Outcome{Outcome(DeadLettered)}
	d.Unsent, again.Copy = true, true
	l := &Ledgers{
		Producer: Seal([]Produced{a, b, c, d, again}),
		Sends:    Seal([]Send{accept("a", "1", 100), accept("a", "2", 110), refuse("b", "3", 120), accept("b", "3", 1900)}),
		Status: Seal([]Row{row("a", "1", 0, Delivered, 150), row("a", "2", 0, Delivered, 160), row("b", "3", 0, Retrying, 170),
			row("b", "3", 1, Delivered, 1950), row("c", "", 0, DeadLettered, 90), row("d", "", 0, Suppressed, 95)}),
		Letters:   Seal([]Letter{{Dead, "c", 0, "bad_json"}, {Retry, "b", 1, "unavailable"}}),
		Processes: Seal([]Footprint{{"w1", at(0), 80, 30, 50 << 20, 0}, {"w1", at(4000), 90, 31, 60 << 20, 0}}),
		Leaks:     Seal[Leak](nil),
		Exposures: Seal([]Exposure{{Worker: "w1", At: at(105), Exposed: 1, Bound: 3, Bytes: 50 << 20, MemoryBound: 400 << 20}}),
		Owners:    Seal([]Owner{{at(-1000), main0, "w1"}}),
		Declared:  Seal[Declared](nil),
		Limits:    Limits{Retries: 3, Standstill: time.Second, Back: time.Second, Look: time.Second},
	}
	samples := []Sample{}
	for ms := 0; ms <= 4000; ms += 100 {
		s := Sample{At: at(ms), Partition: main0, End: 5, Looked: at(ms + 10)}
		if ms >= 200 {
			s.Committed = 2
		}
		if ms >= 1000 {
			s.Committed = 5
		}
		w := Sample{At: at(ms), Partition: retry, End: 1, Waits: true}
		if ms >= 2000 {
			w.Committed = 1
		}
		samples = append(samples, s, w)
	}
	l.Offsets = Seal(samples)
	return l
}

// shift moves the last record one offset further, and returns the one that no
// record has now.
func shift(l *Ledgers) (Partition, int64) {
	l.Producer.Entries[4].Offset = 5
	sampled(l, 0, func(s *Sample) { s.End = 6 })
	sampled(l, 1000, func(s *Sample) { s.Committed = 6 })
	return main0, 4
}

// sampled changes the samples of main0 from a moment on.
func sampled(l *Ledgers, from int, change func(*Sample)) {
	for i := range l.Offsets.Entries {
		if s := &l.Offsets.Entries[i]; s.Partition == main0 && !s.At.Before(at(from)) {
			change(s)
		}
	}
}

// backAt lets samples of main0 from one time to another say 3.
func backAt(l *Ledgers, from, to int) {
	sampled(l, from, func(s *Sample) {
		if !s.At.After(at(to)) {
			s.Committed = 3
		}
	})
}

// away takes the looking from the samples of main0 for a time.
func away(l *Ledgers, from, to int) {
	sampled(l, from, func(s *Sample) {
		if s.At.Before(at(to)) {
			s.Looked = time.Time{}
		}
	})
}

func TestCleanRun(t *testing.T) {
	r := Check(clean())
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if r.Records != 5 || r.Notifications != 4 || r.Pushes != 3 || r.Repeated != 0 || r.Lost != 0 || r.Letters[Dead] != 1 || r.Letters[Retry] != 1 {
		t.Errorf("%+v", r)
	}
	if r.Outcomes[Outcome(Delivered)] != 2 || r.Outcomes[Outcome(DeadLettered)] != 1 || r.Outcomes[Outcome(Suppressed)] != 1 {
		t.Errorf("outcomes %v", r.Outcomes)
	}
	if r.Worst.Standstill != 800*time.Millisecond || r.Worst.Delivery != 1900*time.Millisecond || r.Worst.Sample != 100*time.Millisecond {
		t.Errorf("worst %+v", r.Worst)
	}
}

// kill is an event at a moment that may make this many pushes come again.
func kill(ms, repeats int, exposed ...Pair) Event {
	e := Event{Kind: "kill", Target: "w1", Start: at(ms), End: at(ms), Repeats: repeats}
	if len(exposed) > 0 {
		e.Exposed = map[Pair]bool{}
		for _, p := range exposed {
			e.Exposed[p] = true
		}
	}
	return e
}

// unknown has some notifications of a lane that sends at most once intended
// after 100 ms, and UNKNOWN after 900.
func unknown(l *Ledgers, ids ...string) {
	l.Limits.Mode = AtMostOnce
	l.Producer.Entries[2].Outcomes, l.Letters.Entries = nil, l.Letters.Entries[1:]
	l.Status.Entries = slices.DeleteFunc(l.Status.Entries, func(r Row) bool { return slices.Contains(ids, r.ID) })
	if !slices.Contains(ids, "c") {
		l.Status.Entries[slices.IndexFunc(l.Status.Entries, func(r Row) bool { return r.ID == "c" })].State = Failed
	}
	for _, id := range ids {
		l.Status.Entries = append(l.Status.Entries, row(id, "5", 0, Sending, 100), row(id, "5", 0, Unknown, 900))
	}
}

// unrecordable is a time in which no row can be written.
func unrecordable(from, to int) Event {
	return Event{Kind: "pause", Target: "cassandra", Start: at(from), End: at(to), Stalls: true, Unrecordable: true}
}

// leaves is a kill that may leave so many notifications UNKNOWN.
func leaves(ms, n int) Event {
	e := kill(ms, 1)
	e.Unknown = n
	return e
}

// backlog lets w1 grow by so much while a backlog waits for it; it may hold
// 100 MiB of records.
func backlog(l *Ledgers, grown, waits int64) {
	l.Limits.Held = 100 << 20
	l.Processes.Entries[1].Bytes, l.Processes.Entries[1].Backlog = l.Processes.Entries[0].Bytes+grown, waits
}

// shared has FCM down from 0 to 6 s, and so many pushes of the record "b"
// accepted by APNs in the 6 s before and meanwhile. They are repeats, which a
// fault explains.
func shared(l *Ledgers, before, meanwhile int) {
	l.Limits.Retries = before + meanwhile + 9
	l.Sends.Entries = slices.DeleteFunc(l.Sends.Entries, func(s Send) bool { return s.ID == "b" })
	for i := range before {
		l.Sends.Entries = append(l.Sends.Entries, accept("b", "3", -5000+i))
	}
	meanwhile -= 2 // and those of "a"
	for i := range meanwhile {
		l.Sends.Entries = append(l.Sends.Entries, accept("b", "3", 1000+i))
	}
	l.Events = []Event{{Kind: "down", Target: "fcm", Start: at(0), End: at(6000), Unharmed: "apns"}, kill(0, 999)}
	l.Events[1].Start, l.Events[1].End = at(-6000), at(6000)
}

// ofApp makes all records those of one app, which the event has nothing to do with.
func ofApp(l *Ledgers, name string) {
	for i := range l.Producer.Entries {
		l.Producer.Entries[i].App = name
	}
	l.Events[0].Unharmed, l.Events[0].UnharmedApp = "", name
}

// mostlyEarlier is shared where three of five records were produced long before.
func mostlyEarlier(l *Ledgers, before, meanwhile int) {
	shared(l, before, meanwhile)
	for i := range 3 {
		l.Producer.Entries[i].At = at(-100_000)
	}
}
