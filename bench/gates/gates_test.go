//go:build linux

package gates

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// small is a run of a few batches.
func small(t *testing.T) Options {
	return Options{Users: 2 * batchSize, Passes: 2, Progress: t.Logf, usual: 4, spike: 8}
}

// TestSmallRun: everything is measured, and every decision is right, on a machine
// however slow.
func TestSmallRun(t *testing.T) {
	localtest.Require(t)
	o := small(t)
	o.Profiles = t.TempDir()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]float64{
		"rate": r.Rate, "worker": r.WorkerCPU, "Redis": r.RedisCPU, "one call": r.OneCall, "ratio": r.RatioOneCall,
		"worker of one call": r.OneCallWorker, "Redis of one call": r.OneCallRedis, "record": r.RecordCPU, "Redis of the record": r.RecordRedis,
		"segment": r.Segment, "usual rate": r.Spike.UsualRate, "rate of the spike": r.Spike.Rate, "reached": r.Spike.Reached,
		"usual p99": r.Spike.UsualP99, "p99": r.Spike.P99, "ratio of p99": r.Spike.RatioP99, "worker of the spike": r.Spike.WorkerCPU, "Redis of the spike": r.Spike.RedisCPU,
	} {
		if !(v > 0) || math.IsInf(v, 0) {
			t.Errorf("%s: %v", name, v)
		}
	}
	if r.SegmentAllocs != 0 {
		t.Errorf("a segment is looked up with %v allocations", r.SegmentAllocs)
	}
	if r.Notifications != 40_000 || r.Users != 20_000 || r.Workers != 4 || r.Redis == "" {
		t.Errorf("it was not run so: %+v", r)
	}
	// 34 hot users get one type only, 33 are new, 33 active.
	if s := r.Spike; s.Wrong != 0 || s.Allowed != 34*typeMax+33*newMax+33*userMax || s.Offered != 72_000 {
		t.Errorf("hot users got %d of %d, and %d decisions were wrong", s.Allowed, s.Offered, s.Wrong)
	}
}

// Decisions that are not as they must be make the run fail, in both ways: here
// everybody has had all that the caps allow.
func TestWrongDecisionsAreNoticed(t *testing.T) {
	localtest.Require(t)
	o := small(t)
	s, err := open(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.people.register(t.Context(), s.client, t.Logf); err != nil {
		t.Fatal(err)
	}
	l := s.loads[0]
	for name, do := range map[string]work{"one write for all": s.decide, "one call each": s.askEach} {
		for pass := range newMax + 1 {
			// Only who is new has reached a cap by then: 10 of any type.
			l.fill(s.people, pass*o.Users/batchSize)
			err := do(t.Context(), l)
			if over := pass == newMax; (err != nil) != over || over && !strings.Contains(err.Error(), "no measurement") {
				t.Fatalf("%s, pass %d: %v", name, pass, err)
			}
		}
	}
	l.users[7]++ // a record of somebody else
	if err := s.readRecords(t.Context(), l); err == nil || !strings.Contains(err.Error(), "no measurement") {
		t.Errorf("a wrong record: %v", err)
	}
}

func TestOptionsThatMeasureNothing(t *testing.T) {
	good := Options{Users: 200_000, Passes: 3}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"0 users":        {Users: 0, Passes: 1},
		"multiple":       {Users: 25_000, Passes: 1},
		"up to 10000000": {Users: 10_010_000, Passes: 1},
		"one pass":       {Users: 200_000},
		"rate of -1":     {Users: 200_000, Passes: 1, UsualRate: -1},
		"rate of NaN":    {Users: 200_000, Passes: 1, UsualRate: math.NaN()},
		"take more":      {Users: 50_000, Passes: 1}, // the batches around the spike alone are too many for them
		"fewer passes":   {Users: 200_000, Passes: 10},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A batch has different users, and all have had theirs after a pass.
func TestBatchesAreOfDifferentUsers(t *testing.T) {
	p := testPeople(t)
	l := newLoad()
	ids, got := map[string]bool{}, map[string]int{}
	for k := range 6 {
		batch := map[string]bool{}
		l.fill(p, k)
		for i := range l.Items {
			it := &l.Items[i]
			batch[it.UserID], ids[it.ID] = true, true
			got[it.UserID]++
			if p.ids[l.users[i]] != it.UserID || len(it.ID) != idSize {
				t.Fatalf("item %d: %q for %s", i, it.ID, it.UserID)
			}
		}
		if len(batch) != batchSize {
			t.Errorf("batch %d is for %d users", k, len(batch))
		}
	}
	if len(ids) != 6*batchSize || len(got) != p.usual {
		t.Errorf("%d ids, %d users", len(ids), len(got))
	}
	for user, n := range got {
		if n != 3 {
			t.Fatalf("%s got %d", user, n)
		}
	}
}

// Nine tenths of the spike are for the hot users, equally many each, and no id
// comes twice.
func TestSpikeIsOntoHotUsers(t *testing.T) {
	p := testPeople(t)
	l := newLoad()
	ids, got := map[string]bool{}, map[int32]int{}
	for k := range 2 {
		l.fillSpike(p, 4*batchSize, k)
		for i, user := range l.users {
			ids[l.Items[i].ID] = true
			got[user]++
			if kind, hot := p.hot(int(user)); hot && kind == stoppedByType && l.Items[i].Type != types[0] {
				t.Fatalf("user %d gets type %s", user, l.Items[i].Type)
			}
		}
	}
	if len(ids) != 2*batchSize || len(got) != hotUsers+2*usualInSpike {
		t.Errorf("%d ids, %d users", len(ids), len(got))
	}
	for user, n := range got {
		if _, hot := p.hot(int(user)); hot && n != 180 || !hot && n != 1 {
			t.Errorf("user %d got %d", user, n)
		}
	}
}

// A hot user with one too many is as wrong as one with one too few, and so is
// anybody else without his.
func TestVerdict(t *testing.T) {
	p := testPeople(t)
	for why, tt := range map[string]struct {
		change int
		missed bool
		wrong  int64
	}{"as the caps have it": {0, false, 0}, "one too many": {1, false, 1}, "two too few": {-2, false, 2}, "somebody else refused": {0, true, 1}} {
		c := newCounts(p)
		l := newLoad()
		n := 0
		add := func(user int, allowed bool) {
			l.users[n] = int32(user)
			l.Items[n].Allowed = allowed
			l.Items[n].Deliveries = nil
			if allowed {
				l.Items[n].Deliveries = make([]pipeline.Delivery, 1)
			} else {
				l.Items[n].Verdict = push.Suppressed
			}
			n++
		}
		for i := range hotUsers {
			kind, _ := p.hot(p.usual + i)
			most := kind.cap()
			if i == 50 {
				most += tt.change
			}
			for range most {
				add(p.usual+i, true)
			}
			add(p.usual+i, false)
		}
		add(3, !tt.missed)
		l.users, l.Items = l.users[:n], l.Items[:n]
		c.count(l)
		if _, wrong := c.verdict(); wrong != tt.wrong {
			t.Errorf("%s: %d wrong, want %d", why, wrong, tt.wrong)
		}
	}
}

func TestP99(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Millisecond)
	}
	if got := p99(took); got != 198 {
		t.Errorf("of 1 to 200 ms: %v", got)
	}
	if got := p99(took[:1]); got != 200 {
		t.Errorf("of one: %v", got)
	}
}

func TestProcessorTime(t *testing.T) {
	got, err := processorTime("# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_cpu_sys_children:7\r\n")
	if err != nil || got != 3750*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := processorTime("# CPU\r\nused_cpu_sys:1.5\r\n"); err == nil {
		t.Error("a part of it is taken for all")
	}
}

// A bar is met at its value, but for the one that says under.
func TestBars(t *testing.T) {
	edge := &Result{Rate: 130_000, WorkerCPU: 2, RedisCPU: 6, RatioOneCall: 2.5, RecordCPU: 0.8, Segment: 50, Spike: Spike{RatioP99: 4.99}}
	for _, b := range bars(edge) {
		if !b.Met {
			t.Errorf("%+v is not met", b)
		}
	}
	missed := &Result{Rate: 129_999, WorkerCPU: 2.01, RedisCPU: 6.01, RatioOneCall: 2.49, RecordCPU: 0.81, Segment: 50.1, SegmentAllocs: 1,
		Spike: Spike{RatioP99: 5, Wrong: 1}}
	for _, b := range bars(missed) {
		if b.Met {
			t.Errorf("%+v is met", b)
		}
	}
	if len(bars(edge)) != 9 {
		t.Errorf("%d bars", len(bars(edge)))
	}
}

// Scripts depend on the keys.
func TestKeys(t *testing.T) {
	text, err := json.Marshal(&Result{Bars: bars(&Result{})})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"notifications_per_second", "worker_cpu_us", "redis_cpu_us", "one_call_per_user_per_second",
		"ratio_one_call_per_user", "user_record_cpu_us", "segment_lookup_ns", "spike", "bars", "others_cores"} {
		if got[key] == nil {
			t.Errorf("no key %s in %s", key, text)
		}
	}
}

func testPeople(t *testing.T) *people {
	t.Helper()
	p, err := newPeople(2 * batchSize)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
