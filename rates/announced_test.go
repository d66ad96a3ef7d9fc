package rates

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stepped is four workers whose rate is kept by the test instead of Redis, in steps of a tenth
// of a second: each sends its part of the rate as long as it is there, answers come a step
// later, and a 429 stops all until the provider's window ends, as gates do.
type stepped struct {
	base   float64
	quota  int
	minute time.Duration // the window's length
	says   func(worker int, left int, ends time.Duration) (int, time.Duration)

	workers  []*Rate
	now      time.Time
	start    time.Time
	state    State
	changed  time.Time
	good     int // of the epoch
	under    []answersOf
	rest     float64
	stopped  time.Time
	used     map[int]int // of the quota, by window
	refused  int
	sent     int
	changes  int
	slowest  float64
	accepted []int // by step
}

// answersOf is what one worker is answered in a step.
type answersOf struct {
	epoch      uint32
	good, over int
	left       int
	ends       time.Duration
}

func newStepped(base float64, quota int, minute time.Duration) *stepped {
	w := &stepped{base: base, quota: quota, minute: minute, used: make(map[int]int), slowest: base,
		says: func(_ int, left int, ends time.Duration) (int, time.Duration) { return left, ends }}
	w.now = time.Now()
	w.start, w.changed = w.now, w.now
	w.state = State{Epoch: 1, Rate: base}
	metrics := NewMetrics(prometheus.NewRegistry())
	for range 4 {
		r := newRate(nil, Counted{Name: shopRate, Base: base, Window: minute}, &Options{Fleet: "f", Member: "m", Factors: DefaultFactors(),
			Metrics: metrics, Log: slog.New(slog.DiscardHandler), Tell: func(Change) {}})
		r.become(w.state)
		w.workers = append(w.workers, r)
	}
	return w
}

func (w *stepped) number() int { return int(w.now.Sub(w.start) / w.minute) }

// run goes on for so long.
func (w *stepped) run(long time.Duration) {
	for end := w.now.Add(long); w.now.Before(end); w.now = w.now.Add(every) {
		answers := w.under
		w.under = w.send()
		for i, r := range w.workers {
			if answers != nil {
				a := answers[i]
				for range a.good + a.over {
					if left, ends := w.says(i, a.left, a.ends); ends > 0 {
						r.Announced(w.now, left, ends)
					}
				}
				r.Answered(w.now, a.epoch, a.good, a.over, 0)
				if a.over > 0 {
					ends := w.start.Add(time.Duration(w.number()+1) * w.minute)
					w.stopped = w.now.Add((ends.Sub(w.now) + time.Second - 1).Truncate(time.Second))
				}
			}
			w.exchange(r)
		}
	}
}

// send is what the workers send in a step, and what becomes of it.
func (w *stepped) send() (under []answersOf) {
	w.rest += w.state.Rate * every.Seconds()
	if w.now.Before(w.stopped) {
		w.rest = 0
	}
	took := 0
	for i := range w.workers {
		n := int(w.rest) / (len(w.workers) - i)
		w.rest -= float64(n)
		good := min(n, w.quota-w.used[w.number()])
		w.used[w.number()] += good
		w.sent, w.refused, took = w.sent+n, w.refused+n-good, took+good
		ends := w.start.Add(time.Duration(w.number()+1) * w.minute).Sub(w.now)
		under = append(under, answersOf{w.state.Epoch, good, n - good, w.quota - w.used[w.number()], (ends + time.Second - 1).Truncate(time.Second)})
	}
	w.accepted = append(w.accepted, took)
	return under
}

// exchange is one worker's ask, and what comes of it.
func (w *stepped) exchange(r *Rate) {
	a, cause := r.ask(w.now)
	g := grant{members: len(w.workers)}
	switch {
	case a.known.Epoch != w.state.Epoch:
	case a.proposed != nil:
		w.state, w.changed, w.good, g.changed = *a.proposed, w.now, 0, "proposed"
		w.changes++
		w.slowest = min(w.slowest, w.state.Rate)
	default:
		w.good += a.good
	}
	g.state, g.seen = w.state, seen{age: w.now.Sub(w.changed), good: w.good, recentGood: w.good, taken: w.taken()}
	r.together(w.now, &a, cause, &g)
}

// taken is what was accepted in the last window.
func (w *stepped) taken() (n int) {
	for _, v := range w.accepted[max(len(w.accepted)-int(w.minute/every), 0):] {
		n += v
	}
	return n
}

// A provider that says what is left of its quota is not run into: 429s are next to none from
// the beginning, and the quota is used, from the first whole window on. What comes of the same
// without headers is logged.
func TestAnAnnouncedQuotaIsNotRunInto(t *testing.T) {
	const windows = 5
	for _, tt := range []struct {
		ratio  float64 // of the base to the quota
		quota  int
		minute time.Duration
		used   float64 // at least, of the quota in each window but the first
	}{
		{1, 600_000, time.Minute, 0.99},
		{1.02, 600_000, time.Minute, 0.97},
		{1.5, 600_000, time.Minute, 0.98},
		{4, 600_000, time.Minute, 0.98},
		{9, 600_000, time.Minute, 0.98},
		{4, 1500, time.Minute, 0.98},
		{4, 20_000, 20 * time.Second, 0.94},
	} {
		t.Run(fmt.Sprint(tt.ratio, "/", tt.quota), func(t *testing.T) {
			base := tt.ratio * float64(tt.quota) / tt.minute.Seconds()
			silent := newStepped(base, tt.quota, tt.minute)
			silent.says = func(int, int, time.Duration) (int, time.Duration) { return 0, 0 }
			silent.run(windows * tt.minute)
			w := newStepped(base, tt.quota, tt.minute)
			w.run(windows * tt.minute)
			t.Logf("refused: %d of %d sends, without headers %d of %d; by window %v, without %v; %d changes", w.refused, w.sent, silent.refused, silent.sent, w.used, silent.used, w.changes)
			if 1000*w.refused > w.sent {
				t.Errorf("%d of %d sends were refused, want one in a thousand at the most", w.refused, w.sent)
			}
			for i := 1; i < windows; i++ {
				if used := float64(w.used[i]) / float64(tt.quota); used < tt.used {
					t.Errorf("window %d: %.4f of the quota was used, want %v", i, used, tt.used)
				}
			}
			if w.changes > 3*windows {
				t.Errorf("%d changes of the rate in %d windows", w.changes, windows)
			}
		})
	}
}

// What cannot be true is not heeded for long, and what is true for one connection alone not at
// all: the rate is back near its base soon, is never under a tenth of it, and does not flap.
func TestWhatIsAnnouncedMustBeTrue(t *testing.T) {
	const (
		base  = 1000
		quota = 60 * base // it is never hit
		long  = 5 * time.Minute
	)
	n := 0
	for _, tt := range []struct {
		why    string
		says   func(worker, left int, ends time.Duration) (int, time.Duration)
		full   float64 // of what the base allows, that is sent at least
		heeded bool    // for a while
	}{
		{"nothing is left for an hour", func(int, int, time.Duration) (int, time.Duration) { return 0, time.Hour }, 0.9, true},
		{"always the same few", func(int, int, time.Duration) (int, time.Duration) { return 100, 30 * time.Second }, 0.8, true},
		{"now much, now nothing", func(_, left int, _ time.Duration) (int, time.Duration) {
			n++
			return n % 2 * 1_000_000, 30 * time.Second
		}, 0.8, false},
		{"one connection of ten", func(_, left int, _ time.Duration) (int, time.Duration) {
			n++
			if n%10 == 0 {
				return 0, time.Hour
			}
			return 0, 0
		}, 0.99, false},
		{"one window, and nothing ever after", func(_, left int, ends time.Duration) (int, time.Duration) {
			if n++; n > 1000 {
				return 0, 0
			}
			return 0, 20 * time.Second
		}, 0.8, true},
		{"much more than there is", func(int, int, time.Duration) (int, time.Duration) { return 1_000_000_000, time.Second }, 0.99, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			n = 0
			w := newStepped(base, quota, time.Minute)
			w.says = tt.says
			w.run(long)
			t.Logf("sent %d, refused %d, %d changes, slowest %v", w.sent, w.refused, w.changes, w.slowest)
			if full := float64(w.sent) / (base * long.Seconds()); full < tt.full {
				t.Errorf("%.3f of the base was sent, want %v", full, tt.full)
			}
			if w.slowest < base/10 || w.changes > 4*mostAnnounced || (w.changes > 0) != tt.heeded {
				t.Errorf("%d changes, the rate went down to %v", w.changes, w.slowest)
			}
		})
	}
}

// A rate that was announced goes up with what is left, and one that came back from failures
// only up to there; after a 429 while much was left, which is of another limit, none does.
func TestARateGoesUpWithWhatIsLeft(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		why        string
		rate, mark float64
		over       int
		to, edge   float64 // 0 = nothing changes
	}{
		{"it was announced", 500, 500, 0, 800, 800},
		{"it recovers from something else", 300, 500, 0, 300, 800},
		{"nothing has lowered it", 500, 0, 0, 0, 0},
		{"it is at that already", 790, 790, 0, 0, 0},
		{"another limit was hit", 500, 500, 1, 0, 0},
	} {
		r := newStepped(1000, 1, time.Minute).workers[0]
		r.become(State{Epoch: 2, Rate: tt.rate, Mark: tt.mark})
		r.Announced(now, 48_000, time.Minute)
		r.answeredBy(now, 1, tt.over)
		next, cause := r.heed(now, seen{age: time.Second, good: 1}, r.state, "")
		if tt.to == 0 {
			if cause != "" || next != r.state {
				t.Errorf("%s: %+v for %q, want no change", tt.why, next, cause)
			}
			continue
		}
		if cause != CauseAnnounced || next.Rate != tt.to || next.Mark != tt.edge || next.Epoch != 3 {
			t.Errorf("%s: %+v for %q, want %v up to %v", tt.why, next, cause, tt.to, tt.edge)
		}
	}
}
