package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// rangeOf is a range of the partition's offsets, of which each came to the same.
func rangeOf(partition int32, from, to int64, k *pipeline.Kind) pipeline.Range {
	return pipeline.Range{Partition: push.Partition{Topic: "push.critical", ID: partition}, TopicID: [16]byte{1}, From: from, To: to, Came: []pipeline.Came{{Kind: k, N: to - from}}}
}

func places(t *testing.T, records [][]byte) (all []string) {
	for _, r := range records {
		e := readEvent(t, r)
		if e.Ranges == nil || e.Number == 0 || e.Ranges.Lane != "critical" {
			t.Fatalf("%s", r)
		}
		for _, of := range e.Ranges.Of {
			all = append(all, fmt.Sprintf("%d:%d-%d", of.Partition, of.From, of.To))
		}
	}
	return all
}

// One pointer stands for a kind, whoever asks, and names are bounded as in counts.
func TestKindsAreInterned(t *testing.T) {
	e := events.New("s", startTime)
	a, b := e.Group("critical"), e.Group("critical")
	it, other := eventItem("1", "shop", "order"), eventItem("2", "shop", "promo")
	k := a.Kind(it, push.APNS, push.StateFailed, "BadPath:x")
	if k != b.Kind(it, push.APNS, push.StateFailed, "BadPath:y") || k != a.Kind(it, push.APNS, push.StateFailed, "BadPath") {
		t.Error("two pointers for one kind")
	}
	if want := (pipeline.Kind{Lane: "critical", App: "shop", Type: "order", Reason: "BadPath", Platform: push.APNS, State: push.StateFailed}); *k != want {
		t.Errorf("got %+v, want %+v", *k, want)
	}
	for _, differs := range []*pipeline.Kind{a.Kind(other, push.APNS, push.StateFailed, "BadPath"), a.Kind(it, push.FCM, push.StateFailed, "BadPath"),
		a.Kind(it, push.APNS, push.StateExpired, "BadPath"), a.Kind(it, push.APNS, push.StateFailed, "Other"), e.Group("other").Kind(it, push.APNS, push.StateFailed, "BadPath")} {
		if differs == k {
			t.Errorf("%+v is another kind", *differs)
		}
	}
	for i := range 300 {
		a.Kind(eventItem("3", "shop", fmt.Sprint("type-", i)), push.APNS, push.StateDelivered, "")
	}
	if got := a.Kind(eventItem("3", "shop", "type-299"), push.APNS, push.StateDelivered, ""); got.Type != "other" {
		t.Errorf("the 302nd type is told apart: %q", got.Type)
	}
}

// Ranges that the topic does not take wait, in their order, and hold up nobody for long.
func TestWhatIsNotTakenIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := events.New("s", startTime)
		k := e.Group("critical").Kind(eventItem("1", "shop", "order"), push.APNS, push.StateDelivered, "")
		var taken [][]byte
		away := true
		teller := e.Teller("critical", func(ctx context.Context, records [][]byte) error {
			if away {
				<-ctx.Done()
				return ctx.Err()
			}
			taken = append(taken, records...)
			return nil
		})
		waited := func(from int64) time.Duration {
			begin := time.Now()
			teller.Tell(t.Context(), []pipeline.Range{rangeOf(0, from, from+10, k), rangeOf(1, from, from+10, k)}, time.Now())
			return time.Since(begin)
		}
		if got := waited(0); got != 2*time.Second {
			t.Errorf("the first commit waited %v, want 2 s", got)
		}
		if got := waited(10); got != 50*time.Millisecond || teller.Untold() != 4 {
			t.Errorf("the next one %v, want 50 ms; %d wait, want 4", got, teller.Untold())
		}
		away = false
		if got := waited(20); got != 0 || teller.Untold() != 0 {
			t.Errorf("once the topic is back it waits %v, and %d are untold", got, teller.Untold())
		}
		if got, want := places(t, taken), []string{"0:0-10", "1:0-10", "0:10-20", "1:10-20", "0:20-30", "1:20-30"}; !slices.Equal(got, want) {
			t.Errorf("told %v, want %v", got, want)
		}
		if err := teller.Retry(t.Context()); err != nil || len(taken) != 3 {
			t.Errorf("told again: %v, %d records", err, len(taken))
		}
	})
}

// What is given up for lack of room is told as a gap, with its ranges.
func TestRangesThatAreGivenUpAreAGap(t *testing.T) {
	e := events.New("s", startTime)
	teller := e.Teller("critical", func(context.Context, [][]byte) error { return errors.New("refused") })
	var came []pipeline.Came
	for i := range 150 {
		k := e.Group("critical").Kind(eventItem("1", "shop", fmt.Sprint(strings.Repeat("t", 100), i)), push.APNS, push.StateDelivered, "")
		came = append(came, pipeline.Came{Kind: k, N: 1})
	}
	for i := range int64(1000) {
		teller.Tell(t.Context(), []pipeline.Range{{Partition: push.Partition{Topic: "push.critical"}, From: i, To: i + 1, Came: came}}, startTime.Add(time.Duration(i)*time.Second))
	}
	waiting := teller.Untold()
	if waiting < 20 || waiting > 500 {
		t.Fatalf("%d wait", waiting)
	}
	records := e.Take(startTime.Add(time.Hour))
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	gap := readEvent(t, records[0]).Gap
	if gap == nil || !gap.From.Equal(startTime) || len(gap.Ranges) != 500 || gap.Ranges[0] != (events.Place{Topic: "push.critical", From: 0, To: 1}) {
		t.Errorf("gap %+v", gap)
	}
}

// Records stay within their bound whatever producers write, and lose no count.
func TestRangesFitIntoRecords(t *testing.T) {
	e := events.New("s", startTime)
	var taken [][]byte
	teller := e.Teller("critical", func(_ context.Context, records [][]byte) error {
		taken = append(taken, records...)
		return nil
	})
	var ranges []pipeline.Range
	for p := range int32(40) {
		r := pipeline.Range{Partition: push.Partition{Topic: "push.critical", ID: p}, From: 0, To: 5000}
		for i := range 5000 {
			k := pipeline.Kind{Lane: "critical", App: strings.Repeat("\x01", 100) + fmt.Sprint(i%70), Type: strings.Repeat("<", 100) + fmt.Sprint(i), State: push.StateDelivered}
			r.Came = append(r.Came, pipeline.Came{Kind: &k, N: 1})
		}
		ranges = append(ranges, r)
	}
	teller.Tell(t.Context(), ranges, startTime)
	var sum int64
	var tally events.Tally
	for _, r := range taken {
		event := readEvent(t, r)
		tally.Add(&event, func(c *events.Count, _ time.Time) { sum += c.N })
	}
	if got := len(places(t, taken)); got != 40 || sum != 40*5000 {
		t.Errorf("%d ranges and %d counted, want 40 and %d", got, sum, 40*5000)
	}
}

// BenchmarkKind is what a notification's kind costs.
func BenchmarkKind(b *testing.B) {
	e := events.New("s", startTime)
	items := make([]*pipeline.Item, 2000)
	for i := range items {
		items[i] = eventItem("1", "shop", []string{"order_update", "promo"}[i/100%2])
	}
	b.ReportAllocs()
	for b.Loop() {
		g := e.Group("critical")
		for i, it := range items {
			g.Kind(it, push.Platform(1+i%8/7), push.StateDelivered, "")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(items)), "ns/notification")
}

// tellerOf is a teller whose topic answers as it is told, and the records that it has.
func tellerOf(produce func(records [][]byte) error) (e *events.Collector, teller *events.Teller, tell func(from int64)) {
	e = events.New("s", startTime)
	k := e.Group("critical").Kind(eventItem("1", "shop", "order"), push.APNS, push.StateDelivered, "")
	teller = e.Teller("critical", func(_ context.Context, records [][]byte) error { return produce(records) })
	return e, teller, func(from int64) {
		teller.Tell(context.Background(), []pipeline.Range{rangeOf(0, from, from+10, k)}, startTime)
	}
}

// While the topic takes nothing only one record is offered at a time: the producer may
// hold each of them, and as many fit into it as all hand-overs of the lane need.
func TestWhatWaitsIsNotOfferedOverAndOver(t *testing.T) {
	offered, away := 0, true
	var taken [][]byte
	_, teller, tell := tellerOf(func(records [][]byte) error {
		offered += len(records)
		if away {
			return errors.New("away")
		}
		taken = append(taken, records...)
		return nil
	})
	for i := range int64(100) {
		tell(10 * i)
	}
	if offered > 100 {
		t.Errorf("offered %d records in 100 attempts", offered)
	}
	away = false
	if err := teller.Retry(t.Context()); err != nil || teller.Untold() != 0 || len(taken) != 100 {
		t.Errorf("%v: %d wait, %d told", err, teller.Untold(), len(taken))
	}
}

// What the topic has taken of several records is not told again, and what is too large for
// it holds up nothing: it is a gap.
func TestRecordsAreTakenOneByOne(t *testing.T) {
	var taken [][]byte
	answer := errors.New("away")
	e, teller, tell := tellerOf(func(records [][]byte) error {
		var partly pipeline.PartlyError
		if len(records) < 4 || !errors.As(answer, new(*pipeline.PartlyError)) {
			if answer == nil || len(records) == 1 && errors.As(answer, new(*pipeline.PartlyError)) {
				taken = append(taken, records...)
				return nil
			}
			return answer
		}
		partly.Refused, partly.Open, partly.Err = []int{0}, []int{2}, errors.New("not all")
		taken = append(taken, records[1], records[3])
		answer = nil
		return &partly
	})
	for i := range int64(4) {
		tell(10 * i)
	}
	answer = &pipeline.PartlyError{}
	tell(40) // the probe is taken, then four are offered
	if got, want := places(t, taken), []string{"0:0-10", "0:20-30", "0:40-50"}; !slices.Equal(got, want) || teller.Untold() != 1 {
		t.Errorf("told %v, want %v; %d wait, want 1", got, want, teller.Untold())
	}
	if err := teller.Retry(t.Context()); err != nil || teller.Untold() != 0 {
		t.Errorf("%v, %d wait", err, teller.Untold())
	}
	if got := places(t, taken[3:]); !slices.Equal(got, []string{"0:30-40"}) {
		t.Errorf("told then %v", got)
	}
	records := e.Take(startTime.Add(time.Minute))
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	if gap := readEvent(t, records[0]).Gap; gap == nil || len(gap.Ranges) != 1 || gap.Ranges[0].From != 10 {
		t.Errorf("gap %+v", gap)
	}
}

// What comes while others are told waits for its own turn, even if those were given up
// meanwhile.
func TestWhatComesMeanwhileIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := events.New("s", startTime)
		var taken [][]byte
		teller := e.Teller("critical", func(_ context.Context, records [][]byte) error {
			time.Sleep(time.Second)
			taken = append(taken, records...)
			return nil
		})
		came := make([]pipeline.Came, 500)
		for i := range came {
			came[i] = pipeline.Came{Kind: &pipeline.Kind{Lane: "critical", Type: fmt.Sprint(i), State: push.StateDelivered}, N: 1e12}
		}
		var both sync.WaitGroup
		tell := func(from, to int32) {
			var ranges []pipeline.Range
			for i := from; i < to; i++ {
				ranges = append(ranges, pipeline.Range{Partition: push.Partition{Topic: "push.critical", ID: i}, To: 1, Came: came})
			}
			both.Go(func() { teller.Tell(t.Context(), ranges, time.Now()) })
			synctest.Wait()
		}
		const all = 400
		tell(0, 1)
		tell(1, all) // more than there is room for
		both.Wait()
		told, lost := make(map[int32]bool), make(map[int32]bool)
		for _, r := range taken {
			for _, of := range readEvent(t, r).Ranges.Of {
				told[of.Partition] = true
			}
		}
		for _, r := range e.Take(time.Now()) {
			for _, of := range readEvent(t, r).Gap.Ranges {
				lost[of.Partition] = true
			}
		}
		if len(lost) < 2 || len(told)+len(lost) != all+1 { // the first one was being told when it was given up
			t.Errorf("%d told and %d lost, of %d", len(told), len(lost), all)
		}
	})
}
