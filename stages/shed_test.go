package stages_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// log is where logs end, in as many partitions.
type log struct {
	ends       map[int32]int64
	partitions int
}

func (l *log) End(p push.Partition) (int64, int, bool) {
	end, ok := l.ends[p.ID]
	return end, l.partitions, ok
}

// pace is how a lane goes on.
type pace struct {
	waiting   []int64
	perSecond float64
}

func (p *pace) Pace() ([]int64, float64) { return p.waiting, p.perSecond }

// thresholds are the configuration's own, in hundreds.
var thresholds = stages.Thresholds{push.High: 1000, push.Medium: 500, push.Low: 200, push.Bulk: 100}

// admitted makes a batch of records from an offset on that wait in a tracker.
func admitted(tracker *pipeline.Tracker, from int64, items ...pipeline.Item) *pipeline.Batch {
	b := &pipeline.Batch{Partition: tracker.Partition(), Items: items, Tracker: tracker}
	for i := range items {
		items[i].Offset = from + int64(i)
		if items[i].ID == "" {
			items[i].ID = fmt.Sprintf("%d-%d", tracker.Partition().ID, items[i].Offset)
		}
	}
	tracker.Admit(b)
	return b
}

func tracker(partition int32) *pipeline.Tracker {
	return pipeline.NewTracker(pipeline.TrackerOptions{Partition: push.Partition{Topic: "push", ID: partition}, Capacity: 1 << 20})
}

// of makes n items of a priority.
func of(p push.Priority, n int, edit func(*pipeline.Item)) (items []pipeline.Item) {
	for range n {
		items = append(items, item("", func(it *pipeline.Item) {
			it.Priority = p
			if edit != nil {
				edit(it)
			}
		}))
	}
	return items
}

// shed applies the stage and returns how many items of each reason it shed.
func shed(t *testing.T, s *stages.Shed, b *pipeline.Batch) map[push.Reason]int {
	t.Helper()
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	by := make(map[push.Reason]int)
	for i := range b.Items {
		switch it := &b.Items[i]; it.Verdict {
		case push.Shed:
			by[it.Reason]++
		case push.Undecided:
		default:
			by[push.Reason(it.Verdict.String())]++
		}
	}
	return by
}

func TestAClassIsShedAboveItsThresholdAndUntilUnder80Percent(t *testing.T) {
	for _, c := range []struct {
		class   push.Priority
		depth   int64 // with the records of the batch
		records int
		want    int
	}{
		{push.Critical, 1 << 40, 10, 0},
		{push.High, 1000, 10, 0},
		{push.High, 1001, 10, 10},
		{push.Medium, 500, 10, 0},
		{push.Medium, 501, 10, 10},
		{push.Low, 201, 10, 10},
		{push.Bulk, 100, 10, 0},
		{push.Bulk, 101, 10, 10},
		{push.Bulk, 101, 60, 22},               // the depth is 79 then
		{push.Critical + 1, 101, 10, 10},       // an unknown one is shed as early as bulk
		{push.Bulk, 10_000, 1000, 1000},        // nothing was sent meanwhile
		{push.Low, 201, 100, 42},               // 159
		{push.High, 1001, 500, 1001 - 800 + 1}, // 799
	} {
		tr := tracker(0)
		b := admitted(tr, 0, of(c.class, c.records, nil)...)
		s := stages.NewShed(thresholds, &log{map[int32]int64{0: c.depth}, 1}, &pace{})
		if got := shed(t, s, b)[push.ShedDepth]; got != c.want {
			t.Errorf("%v, depth %d, %d records: got %d shed, want %d", c.class, c.depth, c.records, got, c.want)
		}
	}
}

func TestWhatShedsNothing(t *testing.T) {
	deep := func(partition int32, end int64) *log { return &log{map[int32]int64{partition: end}, 1} }
	for _, c := range []struct {
		name string
		logs *log
		edit func(*pipeline.Item)
		make func(*pipeline.Batch)
	}{
		{"an end that is not known", deep(1, 1<<20), nil, nil},
		{"a retry topic", deep(0, 1<<20), nil, func(b *pipeline.Batch) { b.Retry = true }},
		{"a record that was handed over", deep(0, 1<<20), func(it *pipeline.Item) { it.Hops = 1 }, nil},
		{"an attempt", deep(0, 1<<20), func(it *pipeline.Item) { it.Attempt = 1 }, nil},
		{"a record of which a device has a row", deep(0, 1<<20), func(it *pipeline.Item) { it.History = push.NewHistory([]push.Row{{Device: "d"}}) }, nil},
	} {
		b := admitted(tracker(0), 0, of(push.Bulk, 10, c.edit)...)
		if c.make != nil {
			c.make(b)
		}
		if got := shed(t, stages.NewShed(thresholds, c.logs, &pace{perSecond: 1}), b); len(got) > 0 {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
	b := admitted(tracker(0), 0, of(push.Bulk, 10, nil)...)
	b.Items[3].Decide(push.Expired, push.PastExpiry, "")
	if got := shed(t, stages.NewShed(thresholds, deep(0, 1<<20), &pace{}), b); got[push.ShedDepth] != 9 || got["expired"] != 1 {
		t.Errorf("got %v, want what was decided left as it was", got)
	}
}

// A healthy lane has 50,000 records under way: dispatched, or with rows that are not
// durable, or not committed. They are no depth.
func TestWhatIsUnderWayIsNoDepth(t *testing.T) {
	tr := tracker(0)
	under := admitted(tr, 0, of(push.Medium, 50_000, nil)...)
	items := make([]*pipeline.Item, len(under.Items))
	for i := range under.Items {
		items[i] = &under.Items[i]
	}
	if got := tr.Backlog(50_000); got != 50_000 {
		t.Fatalf("got backlog %d before they went", got)
	}
	tr.Done(items[:20_000])
	for _, it := range items[20_000:] {
		it.Decide(push.Suppressed, push.NoDevice, "") // decided, and its row on the way
	}
	b := admitted(tr, 50_000, of(push.Bulk, 90, nil)...)
	if got := shed(t, stages.NewShed(thresholds, &log{map[int32]int64{0: 50_090}, 1}, &pace{}), b); len(got) > 0 {
		t.Errorf("got %v with %d waiting of %d that are not committed", got, tr.Backlog(50_090), tr.Uncommitted())
	}
}

// A partition that stands still has as many records behind it as one likes: others are
// judged by their own.
func TestAStoppedPartitionCountsForNothing(t *testing.T) {
	logs := &log{map[int32]int64{0: 1 << 30, 1: 20}, 4}
	s := stages.NewShed(thresholds, logs, &pace{waiting: []int64{1 << 30, 20}})
	stopped := tracker(0)
	admitted(stopped, 0, of(push.Bulk, 10, nil)...)
	if got := shed(t, s, admitted(tracker(1), 0, of(push.Bulk, 20, nil)...)); len(got) > 0 {
		t.Errorf("got %v, with 20 x 4 waiting", got)
	}
	logs.ends[1] = 26
	if got := shed(t, s, admitted(tracker(1), 0, of(push.Bulk, 20, nil)...)); got[push.ShedDepth] != 7 { // 26, 25, … 20: 19 x 4 are under 80
		t.Errorf("got %v, with 26 x 4 waiting", got)
	}
}

func TestARowNamesClassDepthAndThreshold(t *testing.T) {
	b := admitted(tracker(0), 0, of(push.Low, 1, nil)...)
	shed(t, stages.NewShed(thresholds, &log{map[int32]int64{0: 150}, 2}, &pace{}), b)
	if it := &b.Items[0]; it.Reason != push.ShedDepth || it.Detail != "class=low depth=300 threshold=200" {
		t.Errorf("got %s:%s", it.Reason, it.Detail)
	}
	b = admitted(tracker(1), 0, of(push.Low, 101, func(it *pipeline.Item) { it.ExpiresAt = time.Now().Add(9500 * time.Millisecond) })...)
	shed(t, stages.NewShed(thresholds, &log{map[int32]int64{1: 101}, 1}, &pace{waiting: []int64{101}, perSecond: 10}), b)
	if it := &b.Items[100]; it.Reason != push.ShedDeadline || !strings.HasPrefix(it.Detail, "class=low depth=96 wait_s=9") {
		t.Errorf("got %s:%s", it.Reason, it.Detail)
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) func(*pipeline.Item) {
			return func(it *pipeline.Item) { it.ExpiresAt = time.Now().Add(d) }
		}
		all := &log{map[int32]int64{0: 1000}, 1}
		none := stages.Thresholds{push.High: 1 << 40, push.Medium: 1 << 40, push.Low: 1 << 40, push.Bulk: 1 << 40}
		for _, c := range []struct {
			name  string
			items []pipeline.Item
			pace  pace
			t     stages.Thresholds
			want  int
		}{
			{"1,000 in 10 s, at 100 a second", of(push.Bulk, 1000, in(10*time.Second)), pace{[]int64{1000}, 100}, none, 0},
			// Those that are shed are ahead of nobody: each one later finds as many.
			{"1,000 in 5 s", of(push.Bulk, 1000, in(5*time.Second)), pace{[]int64{1000}, 100}, none, 499},
			{"the rate is not known", of(push.Bulk, 1000, in(time.Second)), pace{[]int64{1000}, 0}, none, 0},
			{"critical", of(push.Critical, 1000, in(time.Second)), pace{[]int64{1000}, 100}, none, 0},
			{"none has a deadline", of(push.Bulk, 1000, nil), pace{[]int64{1000}, 1}, none, 0},
			{"another partition has 1,000 too", of(push.Bulk, 1000, in(10*time.Second)), pace{[]int64{1000, 5000}, 100}, none, 499},
			{"another has little", of(push.Bulk, 1000, in(10*time.Second)), pace{[]int64{1000, 10}, 100}, none, 9},
			// What is shed for the depth is ahead of nobody either.
			{"behind bulk that goes", slices.Concat(of(push.Bulk, 900, nil), of(push.High, 100, in(2*time.Second))), pace{[]int64{1000}, 100}, thresholds, 0},
		} {
			b := admitted(tracker(0), 0, c.items...)
			if got := shed(t, stages.NewShed(c.t, all, &c.pace), b)[push.ShedDeadline]; got != c.want {
				t.Errorf("%s: got %d shed, want %d", c.name, got, c.want)
			}
		}
	})
}

// A class that is shed comes back under 80 % also while none of its records come.
func TestAClassOpensWhileNoneOfItComes(t *testing.T) {
	logs, tr := &log{map[int32]int64{0: 150}, 1}, tracker(0)
	s := stages.NewShed(thresholds, logs, &pace{})
	if got := shed(t, s, admitted(tr, 0, of(push.Bulk, 10, nil)...)); got[push.ShedDepth] != 10 {
		t.Fatalf("got %v, want all shed", got)
	}
	logs.ends[0] = 60 // 50 wait
	high := admitted(tr, 10, of(push.High, 10, nil)...)
	shed(t, s, high)
	logs.ends[0] = 110 // 100 wait: not above the threshold, and not under 80 % of it
	if got := shed(t, s, admitted(tr, 20, of(push.Bulk, 5, nil)...)); len(got) > 0 {
		t.Errorf("got %v, although fewer than 80 %% waited in between", got)
	}
}

// What the stage does over a history of batches, beside a model that is slow and plain.
func TestDepthAndHysteresisAreAsModelled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 3).Draw(t, "partitions")
		logs := &log{map[int32]int64{}, partitions}
		s := stages.NewShed(thresholds, logs, &pace{})
		type partition struct {
			tracker       *pipeline.Tracker
			next, waiting int64
			open          []*pipeline.Item
			over          map[push.Priority]bool
		}
		all := make([]*partition, partitions)
		for i := range all {
			all[i] = &partition{tracker: tracker(int32(i)), over: map[push.Priority]bool{}}
		}
		t.Repeat(map[string]func(*rapid.T){
			"batch": func(t *rapid.T) {
				i := rapid.IntRange(0, partitions-1).Draw(t, "partition")
				p := all[i]
				var items []pipeline.Item
				for range rapid.IntRange(1, 60).Draw(t, "records") {
					items = append(items, of(push.Priority(rapid.IntRange(1, 5).Draw(t, "class")), 1, nil)...)
				}
				end := p.next + int64(len(items)) + int64(rapid.IntRange(0, 400).Draw(t, "behind them"))
				logs.ends[int32(i)] = end
				b := admitted(p.tracker, p.next, items...)
				p.next += int64(len(items))
				p.waiting += int64(len(items))
				before := (end - p.next + p.waiting) * int64(partitions)
				for c, threshold := range map[push.Priority]int64{push.Bulk: 100, push.Low: 200, push.Medium: 500, push.High: 1000} {
					p.over[c] = p.over[c] && float64(before) >= 0.8*float64(threshold) || before > threshold
				}
				if err := s.Apply(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				for j := range b.Items {
					it := &b.Items[j]
					depth := (end - p.next + p.waiting) * int64(partitions)
					threshold := map[push.Priority]int64{push.Bulk: 100, push.Low: 200, push.Medium: 500, push.High: 1000}[it.Priority]
					switch {
					case it.Priority == push.Critical:
					case p.over[it.Priority]:
						p.over[it.Priority] = float64(depth) >= 0.8*float64(threshold)
					default:
						p.over[it.Priority] = depth > threshold
					}
					if want := p.over[it.Priority]; want != (it.Verdict == push.Shed) {
						t.Fatalf("record %d of class %v at depth %d: got %v, want shed %v", j, it.Priority, depth, it.Verdict, want)
					}
					if it.Verdict == push.Shed {
						p.waiting--
					} else {
						p.open = append(p.open, it)
					}
				}
			},
			"sent": func(t *rapid.T) {
				p := all[rapid.IntRange(0, partitions-1).Draw(t, "partition")]
				n := rapid.IntRange(0, len(p.open)).Draw(t, "records")
				p.tracker.Done(p.open[:n])
				p.open, p.waiting = p.open[n:], p.waiting-int64(n)
			},
			"": func(t *rapid.T) {
				for i, p := range all {
					if got := p.tracker.Waiting(); got != p.waiting {
						t.Fatalf("partition %d: got %d waiting, want %d", i, got, p.waiting)
					}
				}
			},
		})
	})
}

// A lane sends what expires sooner first, but nothing is overtaken for more than 5 s:
// what can be met in that order is not shed, though as it came it could not.
func TestADeadlineIsJudgedByTheOrderOfSending(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  int           // records that expire in 8 s
		others int           // records that have a day
		left   time.Duration // of the last one, behind all those
		shed   bool
	}{
		{"in order at once", 0, 900, 9 * time.Second, false},
		{"overtaking what has a day", 0, 2000, 9 * time.Second, false},
		{"behind what expires sooner", 2000, 0, 9 * time.Second, true},
		{"behind a few that do", 300, 1700, 9 * time.Second, false},
		{"behind half that do: the others are late", 1000, 1000, 14 * time.Second, true},
		{"behind half that do, with time for them", 1000, 1000, 16 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := pipeline.NewTracker(pipeline.TrackerOptions{Capacity: 1 << 20, Expiries: true})
			expires := func(left time.Duration) func(*pipeline.Item) {
				return func(it *pipeline.Item) { it.ExpiresAt = time.Now().Add(left) }
			}
			admitted(tr, 0, of(push.Low, c.first, expires(8*time.Second))...)
			admitted(tr, int64(c.first), of(push.Low, c.others, expires(24*time.Hour))...)
			b := admitted(tr, int64(c.first+c.others), of(push.Low, 1, expires(c.left))...)
			s := stages.NewShed(stages.Thresholds{push.Low: 1 << 30}, &log{map[int32]int64{0: 1}, 1}, &pace{[]int64{1 << 20}, 100})
			if got := shed(t, s, b)[push.ShedDeadline] > 0; got != c.shed {
				t.Errorf("%s: shed %v, want %v", c.name, got, c.shed)
			}
			b.Tracker.Abandon([]*pipeline.Item{&b.Items[0]})
			if n, ok := tr.Sooner(&b.Items[0], time.Now()); !ok || n != int64(c.first) {
				t.Errorf("%s: %d are counted that expire sooner (%v), want %d", c.name, n, ok, c.first)
			}
		})
	}
}

// What is not counted by its expiry is not judged by it: what has none, what expires too
// far ahead, and all of a tracker that does not count. What is critical goes first.
func TestWhatIsSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := pipeline.NewTracker(pipeline.TrackerOptions{Capacity: 1 << 20, Expiries: true})
		admitted(tr, 0, of(push.Critical, 3, nil)...)
		in := func(left time.Duration) *pipeline.Item {
			return &admitted(tr, 10, of(push.Low, 1, func(it *pipeline.Item) {
				it.ID, it.ExpiresAt = left.String(), time.Now().Add(left)
			})...).Items[0]
		}
		late, soon, gone := in(time.Hour), in(200*time.Second), in(-time.Second)
		for _, c := range []struct {
			it *pipeline.Item
			n  int64
			ok bool
		}{{late, 0, false}, {soon, 4, true}, {gone, 3, true}, {&admitted(tr, 20, of(push.Low, 1, nil)...).Items[0], 0, false}} {
			if n, ok := tr.Sooner(c.it, time.Now()); n != c.n || ok != c.ok {
				t.Errorf("%s: got %d, %v; want %d, %v", c.it.ID, n, ok, c.n, c.ok)
			}
		}
		if _, ok := tracker(0).Sooner(soon, time.Now()); ok {
			t.Error("a tracker tells what it does not count")
		}
	})
}

func TestTheRateIsThatOfGoodSeconds(t *testing.T) {
	var r stages.Rate
	tell := func(n int, sent uint64, behind bool) {
		for range n {
			r.Second(sent, behind)
		}
	}
	is := func(want float64, when string) {
		t.Helper()
		if got := r.PerSecond(); got != want {
			t.Errorf("%s: got %v a second, want %v", when, got, want)
		}
	}
	is(0, "at first")
	tell(3600, 3, false) // a quiet night
	is(0, "while nothing waited")
	tell(10, 1000, true)
	is(0, "with 9 good seconds")
	tell(2, 1000, true)
	is(1000, "with more")
	tell(1, 300, true) // the second in which a pause begins
	tell(300, 0, true)
	is(1000, "in a pause")
	tell(1, 2, true) // a probe
	tell(30, 0, true)
	tell(1, 500, true) // the second in which it ends
	is(1000, "after a pause")
	tell(62, 400, true)
	is(400, "a minute later")
	tell(840, 5, false)
	is(400, "while nothing waits")
	tell(3600, 5, false)
	is(0, "when that is long ago")
}

// What the stage costs a record: of a lane that keeps all, and of one that sheds all.
func BenchmarkShed(b *testing.B) {
	const records = 10_000
	for _, c := range []struct {
		name string
		end  int64
	}{{"none", records}, {"all", 1 << 40}} {
		b.Run(c.name, func(b *testing.B) {
			items := of(push.Low, records, func(it *pipeline.Item) { it.ExpiresAt = time.Now().Add(time.Hour) })
			s := stages.NewShed(stages.Thresholds{push.Low: 1 << 30}, &log{map[int32]int64{0: c.end}, 1}, &pace{make([]int64, 18), 1e6})
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				batch := admitted(tracker(0), 0, slices.Clone(items)...)
				b.StartTimer()
				if err := s.Apply(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
		})
	}
}

// A priority that the lane gives is the one that counts: what only said that it is critical
// goes ahead of nothing, and what is made critical goes ahead of all.
func TestWhatIsSoonerGoesByThePriorityOfTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			priority, byDefault push.Priority
			critical            map[string]bool
			sooner              int64
		}{
			{push.Critical, push.Low, map[string]bool{}, 0},
			{push.Critical, push.Low, nil, 5},
			{0, push.Critical, nil, 5},
			{0, push.Low, nil, 0},
		} {
			tr := pipeline.NewTracker(pipeline.TrackerOptions{Capacity: 1 << 20, Expiries: true})
			b := admitted(tr, 0, of(c.priority, 5, func(it *pipeline.Item) {
				it.App, it.FirstSeen, it.ExpiresAt = "shop", push.At(time.Now()), time.Now().Add(time.Minute)
			})...)
			a := &stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: time.Hour, DefaultPriority: c.byDefault, MayBeCritical: c.critical}
			if err := a.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			one := &admitted(tr, 5, of(push.Low, 1, func(it *pipeline.Item) { it.ID, it.ExpiresAt = "one", time.Now().Add(time.Second) })...).Items[0]
			if n, ok := tr.Sooner(one, time.Now()); !ok || n != c.sooner+1 {
				t.Errorf("%v, %v by default: %d are sooner, want %d", c.priority, c.byDefault, n-1, c.sooner)
			}
			for i := range b.Items {
				b.Items[i].Decide(push.Shed, push.ShedDepth, "")
			}
			if n, _ := tr.Sooner(one, time.Now()); n != 1 {
				t.Errorf("%v, %v by default: %d are left", c.priority, c.byDefault, n-1)
			}
		}
	})
}
