package senders

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// telling is under with who is told of the buckets.
func telling(t testing.TB, f *Fullest, rules ...Rule) *Limits {
	l := under(t, shardstest.Start(t), rules...)
	l.fullest = f
	return l
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

// What Decide learns of the buckets is what is told of them: how full they were, how full
// they are by now, and how often each rule put something off.
func TestFullest(t *testing.T) {
	var f Fullest
	second := hourly(time.Hour) // it is never what something waits for
	second.Name, second.Burst, second.Max = "more", 100, 600
	l := telling(t, &f, hourly(time.Minute), second)
	decide := func(at time.Time, reqs ...[]*limits.Request) {
		t.Helper()
		for _, r := range reqs {
			if err := l.Decide(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	decide(start, from("orders", 1, start), from("orders", 4, start), from("ads", 1, start)) // of orders' 2 tokens and 1 in advance; 2 have none
	list, more := f.Take(start.Add(30*time.Second), 3)
	if len(list) != 3 || more != 1 {
		t.Fatalf("%+v and %d more, want 3 and 1", list, more)
	}
	if s := list[0]; s.Rule.Name != "hourly" || s.Sender != "orders" || s.Full != 2*time.Minute || !near(s.Greatest, 1.5) || !near(s.Now, 1.25) || s.Limited != 3 {
		t.Errorf("the fullest: %+v", s)
	}
	if s := list[1]; s.Rule.Name != "hourly" || s.Sender != "ads" || !near(s.Greatest, 0.5) || !near(s.Now, 0.25) || s.Limited != 0 {
		t.Errorf("the next: %+v", s)
	}
	if s := list[2]; s.Rule.Name != "more" || s.Sender != "orders" || s.Full != 10*time.Minute || !near(s.Greatest, 0.03) || s.Limited != 0 {
		t.Errorf("the third: %+v", s)
	}

	// Who has asked for nothing since is not told of; who has, begins anew.
	decide(start, from("ads", 1, start.Add(10*time.Minute)))
	if list, _ = f.Take(start.Add(20*time.Minute), 9); len(list) != 2 || list[0].Sender != "ads" || !near(list[0].Greatest, 0.5) || list[0].Now != 0 || list[0].Limited != 0 {
		t.Errorf("10 minutes later: %+v", list)
	}
	if list, _ = f.Take(start.Add(30*time.Minute), 9); len(list) != 0 || len(f.standings) != 0 {
		t.Errorf("nobody asks: %+v, %d kept", list, len(f.standings))
	}

	// What is refused because it would come too late counts too; an answer that cannot be
	// read, and a look, do not.
	reqs := from("orders", 3, start.Add(time.Hour))
	reqs[2].Expires = reqs[2].At
	decide(start, reqs)
	look := from("looked", 1, start)
	if err := l.Preview(t.Context(), look); err != nil {
		t.Fatal(err)
	}
	if list, _ = f.Take(start.Add(time.Hour), 9); len(list) != 2 || list[0].Limited != 1 || !near(list[0].Greatest, 1) {
		t.Errorf("one that expires: %+v", list)
	}
}

// An answer that was not given says nothing of a bucket.
func TestNoAnswerIsNoStanding(t *testing.T) {
	var f Fullest
	client := shardstest.Start(t)
	client.AddHook(&scripts{answer: errors.New("connection refused")})
	l := under(t, client, hourly(0))
	l.fullest = &f
	if err := l.Decide(t.Context(), from("orders", 1, start)); err == nil {
		t.Fatal("answered")
	}
	if list, _ := f.Take(start, 9); len(list) != 0 {
		t.Errorf("told %+v", list)
	}
}

// However many senders producers make up, no more than a bound are kept, and those that
// are fuller than they stay.
func TestFullestIsBounded(t *testing.T) {
	var f Fullest
	buckets, err := compile([]Rule{hourly(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	b := &buckets[0]
	for i := range 100_000 {
		if i%10_000 == 5000 {
			f.note(b, fmt.Sprint("full-", i/10_000), b.full+int64(i), 1, start)
		}
		f.note(b, fmt.Sprint("made-up-", i), b.full/2, 0, start)
	}
	if len(f.standings) != maxStandings {
		t.Errorf("%d kept", len(f.standings))
	}
	list, more := f.Take(start, 12)
	if len(list) != 12 || more != maxStandings-12 {
		t.Fatalf("%d told, %d more", len(list), more)
	}
	for i, s := range list[:10] {
		if want := fmt.Sprint("full-", 9-i); s.Sender != want || s.Limited != 1 {
			t.Errorf("%d: %+v, want %s", i, s, want)
		}
	}
	if list[10].Greatest != 0.5 {
		t.Errorf("then %+v", list[10])
	}
}

// Who is no fuller than those that are kept takes nobody's place.
func TestNewcomersTakeNoFullerPlace(t *testing.T) {
	var f Fullest
	buckets, err := compile([]Rule{hourly(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	b := &buckets[0]
	for i := range maxStandings {
		f.note(b, fmt.Sprint("kept-", i), b.full/2, 0, start)
	}
	for i := range int64(100) {
		f.note(b, fmt.Sprint("as-full-", i), b.full/2-i/50, 1, start)
	}
	list, _ := f.Take(start, maxStandings)
	for _, s := range list {
		if s.Limited > 0 {
			t.Fatalf("%s took the place of one that was as full", s.Sender)
		}
	}
}

// A rule that is changed has another bucket from then on.
func TestStandingOfAChangedRule(t *testing.T) {
	var f Fullest
	larger := hourly(time.Hour)
	larger.Burst = 4
	buckets, err := compile([]Rule{hourly(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	changed, err := compile([]Rule{larger})
	if err != nil {
		t.Fatal(err)
	}
	f.note(&buckets[0], "orders", 2*buckets[0].full, 0, start)
	f.note(&changed[0], "orders", changed[0].full/2, 1, start)
	if list, _ := f.Take(start, 9); len(list) != 1 || list[0].Greatest != 0.5 || list[0].Rule.Burst != 4 || list[0].Limited != 1 {
		t.Errorf("told %+v", list)
	}
}

// An answer that comes late does not stand for what is now; noting one costs nothing.
func TestNote(t *testing.T) {
	var f Fullest
	buckets, err := compile([]Rule{hourly(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	b := &buckets[0]
	f.note(b, "orders", b.full/4, 0, start.Add(time.Second))
	f.note(b, "orders", b.full, 0, start)
	if list, _ := f.Take(start.Add(time.Second), 1); !near(list[0].Now, 0.25) || list[0].Greatest != 1 {
		t.Errorf("told %+v", list)
	}
	if n := testing.AllocsPerRun(100, func() { f.note(b, "orders", 7, 1, start) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	(*Fullest)(nil).note(b, "orders", 7, 1, start)
}
