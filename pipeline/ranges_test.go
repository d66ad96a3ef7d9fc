package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
)

// kindsOf makes one kind of each word.
type kindsOf struct {
	noEvents
	known  map[Kind]*Kind
	last   Kind
	lastIs *Kind
}

func (e *kindsOf) Group(string) Endings { return e }

func (e *kindsOf) Kind(_ *Item, p push.Platform, s push.State, reason string) *Kind {
	k := Kind{Reason: reason, Platform: p, State: s}
	if e.lastIs == nil || e.last != k {
		e.last, e.lastIs = k, e.kind(k)
	}
	return e.lastIs
}

func (e *kindsOf) kind(k Kind) *Kind {
	if e.known == nil {
		e.known = make(map[Kind]*Kind)
	}
	if e.known[k] == nil {
		e.known[k] = &k
	}
	return e.known[k]
}

func words(kinds []*Kind) string {
	var all []string
	for _, k := range kinds {
		state := "DUPLICATE"
		if k.State != 0 {
			state = k.State.String()
		}
		all = append(all, strings.TrimSpace(state+" "+k.Reason))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// An item counts as what its devices came to, here or by the rows of a former owner for
// the same record; a copy counts as one only where there is no such row.
func TestWhatAnItemCameTo(t *testing.T) {
	at := push.Partition{Topic: "push.critical", ID: 3}
	here := at.Place(7)
	row := func(device string, s push.State, place uint64, step int16) push.Row {
		return push.Row{ID: "n", Device: device, State: s, Place: place, Step: step, Platform: push.FCM, Reason: "of before"}
	}
	sent := func(device string, s push.State, reason push.Reason) Delivery {
		return Delivery{Device: Device{Hash: device}, Route: push.Route{Platform: push.FCM}, ending: Ending{State: s, Reason: reason}}
	}
	claimed := sent("a", 0, "")
	claimed.Result.Class = push.Claimed
	foundHere := claimed
	foundHere.found = &push.Row{State: push.StateDelivered}
	for _, tt := range []struct {
		why  string
		item Item
		rows []push.Row
		want string
	}{
		{"two devices", Item{Deliveries: []Delivery{sent("a", push.StateDelivered, ""), sent("b", push.StateFailed, "GONE")}}, nil, "DELIVERED, FAILED GONE"},
		{"a retry of one of them", Item{Deliveries: []Delivery{sent("a", push.StateRetrying, "SLOW"), claimed}}, nil, "RETRYING SLOW"},
		{"another record has all devices", Item{Deliveries: []Delivery{claimed, claimed}}, nil, "DUPLICATE"},
		{"the former owner's row came late", Item{Deliveries: []Delivery{foundHere}}, nil, "DELIVERED"},
		{"as a whole", Item{Verdict: push.Suppressed, Reason: push.Limited, Detail: "daily"}, nil, "SUPPRESSED limited:daily"},
		{"as a whole, with its devices named", Item{Verdict: push.Expired, Reason: push.PastExpiry, Devices: []string{"a", "b"}}, nil, "EXPIRED " + string(push.PastExpiry) + ", EXPIRED " + string(push.PastExpiry)},
		{"a copy", Item{Verdict: push.Duplicate}, nil, "DUPLICATE"},
		{"a copy of one elsewhere", Item{Verdict: push.Duplicate}, []push.Row{row("a", push.StateDelivered, at.Place(6), 0), row("a", push.StateFailed, 0, 0)}, "DUPLICATE"},
		{"read again", Item{Verdict: push.Duplicate}, []push.Row{row("a", push.StateDelivered, here, 0), row("b", push.StateHeld, here, 0)}, "DELIVERED of before, HELD of before"},
		{"read again, of another step", Item{Verdict: push.Duplicate}, []push.Row{row("a", push.StateDelivered, here, 1)}, "DUPLICATE"},
		{"an intent is no outcome", Item{Verdict: push.Duplicate}, []push.Row{row("a", push.StateSending, here, 0)}, "DUPLICATE"},
		{"one device ended before", Item{Deliveries: []Delivery{sent("b", push.StateFailed, "GONE")}}, []push.Row{row("a", push.StateDelivered, here, 0)}, "DELIVERED of before, FAILED GONE"},
		{"the same row once more", Item{Verdict: push.Unresolved, Reason: push.IntentLost, Devices: []string{"a", "b"}}, []push.Row{row("a", push.StateUnknown, here, 0)}, "UNKNOWN " + string(push.IntentLost) + ", UNKNOWN of before"},
		{"the same delivery once more", Item{Deliveries: []Delivery{sent("a", push.StateFailed, "GONE")}}, []push.Row{row("a", push.StateFailed, here, 0)}, "FAILED of before"},
	} {
		it := tt.item
		it.Partition, it.Offset, it.ID = at, 7, "n"
		it.Ended = it.EndedBefore(tt.rows)
		p := &Pipeline{opt: Options{Lane: "x", Metrics: NewMetrics(prometheus.NewRegistry()), Events: &kindsOf{}}}
		p.ending([]*Item{&it})
		if got := words(it.Came); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
	}
}

// trackedWith is a tracker with records at offsets 0, 1, ….
func trackedWith(n int, counts bool) (*Tracker, []*Item) {
	tr := NewTracker(TrackerOptions{Capacity: 1 << 20, Counts: counts})
	b := &Batch{Tracker: tr, Items: make([]Item, n)}
	items := make([]*Item, n)
	for i := range b.Items {
		b.Items[i].ID, b.Items[i].Offset = fmt.Sprint(i), int64(i)
		items[i] = &b.Items[i]
	}
	tr.Admit(b)
	return tr, items
}

func sum(came []Came) (n int64) {
	for _, c := range came {
		n += c.N
	}
	return n
}

// What records came to is taken once, up to an offset, and never before all below it
// have ended.
func TestTakeTakesOnce(t *testing.T) {
	tr, items := trackedWith(10, true)
	k := &Kind{}
	for i, it := range items {
		for range 1 + i%3 {
			it.Came = append(it.Came, k)
		}
	}
	tr.Done(items[4:])
	if below, ok := tr.Settled(); ok {
		t.Fatalf("settled below %d while the first is open", below)
	}
	if got := sum(tr.Take(0)); got != 0 {
		t.Errorf("%d taken", got)
	}
	tr.Done(items[:4])
	if below, _ := tr.Settled(); below != 10 {
		t.Errorf("settled below %d, want 10", below)
	}
	if got := []int64{sum(tr.Take(4)), sum(tr.Take(4)), sum(tr.Take(10)), sum(tr.Take(10))}; !slices.Equal(got, []int64{7, 0, 12, 0}) {
		t.Errorf("took %v, want 7, nothing, 12, nothing", got)
	}
}

// The results of intents come after their commit, and are taken all the same.
func TestTakeOfWhatIsCommittedBefore(t *testing.T) {
	tr, items := trackedWith(6, true)
	k := &Kind{}
	for _, it := range items {
		it.Came = []*Kind{k, k}
	}
	tr.Done(items[:2])
	tr.Intend(items[2:])
	tr.Committed(6)
	if below, _ := tr.Settled(); below != 2 {
		t.Errorf("settled below %d, want the first intent", below)
	}
	tr.Done(items[3:])
	if got := sum(tr.Take(2)); got != 4 {
		t.Errorf("took %d, want 4", got)
	}
	tr.Done(items[2:3])
	if below, _ := tr.Settled(); below != 6 {
		t.Errorf("settled below %d, want 6", below)
	}
	if got := sum(tr.Take(6)); got != 8 || len(tr.ended) != 0 {
		t.Errorf("took %d and keeps %d, want 8 and none", got, len(tr.ended))
	}
}

// A tracker whose records nobody counts keeps nothing of them.
func TestNothingIsKeptWhereNobodyCounts(t *testing.T) {
	tr, items := trackedWith(6, false)
	for _, it := range items {
		it.Came = []*Kind{{}, {}}
	}
	tr.Done(items)
	tr.Committed(6)
	if len(tr.ended) != 0 || items[0].Came != nil {
		t.Errorf("keeps %d", len(tr.ended))
	}
}

// BenchmarkRanges is what ranges add to a notification: its kind, and its place in a sum.
func BenchmarkRanges(b *testing.B) {
	const group = 2000
	e := &kindsOf{}
	p := &Pipeline{opt: Options{Lane: "x", Metrics: NewMetrics(prometheus.NewRegistry()), Events: e}}
	tr, items := trackedWith(group, true)
	ds := make([]Delivery, group)
	for i, it := range items {
		ds[i] = Delivery{Route: push.Route{Platform: push.FCM}, ending: Ending{State: push.StateDelivered}}
		it.Deliveries = ds[i : i+1]
	}
	came := make([]*Kind, 0, 2*group)
	b.ReportAllocs()
	for b.Loop() {
		came = came[:0]
		told := p.opt.Events.Group("x")
		for _, it := range items {
			from := len(came)
			came = it.kinds(told, came)
			it.Came = came[from:len(came):len(came)]
		}
		tr.mu.Lock()
		for i, it := range items {
			tr.count(it, &tr.records[i])
		}
		tr.passed, tr.taken = group, 0
		tr.mu.Unlock()
		if sum(tr.Take(group)) != group {
			b.Fatal("not all taken")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/group, "ns/notification")
}
