package fanout

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counting counts what is written, which is there at once.
type counting struct{ atomic.Int64 }

func (c *counting) Produce(records []Record, done func(error)) {
	c.Add(int64(len(records)))
	instant{}.Produce(records, done)
}

// workers work on a lane, so many records a second, and say how they stand.
type workers struct {
	written func() int64

	mu     sync.Mutex
	rate   float64 // guarded by mu
	done   float64 // guarded by mu
	base   int64   // guarded by mu; committed before all that
	most   int64   // guarded by mu; that was not done at once, since it was reset
	silent bool    // guarded by mu; commits come later
	said   int64   // guarded by mu; what was committed last
}

// step is a hundredth of a second.
func (w *workers) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	behind := float64(w.written()) - w.done
	w.most = max(w.most, int64(behind))
	w.done += min(w.rate/100, behind)
	if !w.silent {
		w.said = int64(w.done)
	}
}

func (w *workers) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.step()
		time.Sleep(time.Second / 100)
	}
}

func (w *workers) Lag(context.Context, string) (Backlog, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Backlog{w.written() - w.said, w.base + w.said}, nil
}

// during sets how the workers are, and returns after some time how much they have done in it,
// and the most that waited in its second half.
func (w *workers) during(long time.Duration, rate float64, silent bool) (done, most int64) {
	w.mu.Lock()
	w.rate, w.silent = rate, silent
	before := w.done
	w.mu.Unlock()
	time.Sleep(long / 2)
	w.mu.Lock()
	w.most = 0
	w.mu.Unlock()
	time.Sleep(long / 2)
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.done - before), w.most
}

// A fan-out keeps the workers of its lane at work, and never by much more than they do in two
// seconds, however fast they are and become: a single message waits for no longer.
func TestPacedByWhatTheLaneDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce, each = 4, 300 // each chunk has so many members
		w := newWorld(nil, func(l *Limits) { l.Lag, l.LagTime, l.Page, l.Records = 1_000_000, 2*time.Second, 100, 400 })
		written := new(counting)
		w.Emitter.Audience, w.Emitter.Producer = pagesOf(manyUsers(each), 100), written
		lane := &workers{written: written.Load, base: 1_000_000_000}
		w.pace.lag = lane
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { lane.run(ctx) })
		next := make(chan struct{}, atOnce)
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				next <- struct{}{}
				j := aliveJob(t, func(j *Job) { binary.BigEndian.PutUint32(j.Message[12:], uint32(i)) })
				running.Go(func() {
					defer func() { <-next }()
					if err := w.do(ctx, &Chunk{Job: j}); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				})
			}
		})
		for _, tt := range []struct {
			why    string
			long   time.Duration
			rate   float64
			silent bool
			least  float64 // part of what they can do that they must have done
			most   float64 // that may have waited
		}{
			{"fast", time.Minute, 20_000, false, 0.8, 2.5 * 20_000},
			{"slower", time.Minute, 2_000, false, 0.95, 2.5*2_000 + atOnce*each},
			{"gone", time.Minute, 0, false, 0, 2.5*2_000 + atOnce*each},
			{"back, and faster", time.Minute, 30_000, false, 0.7, 2.5 * 30_000},
			{"commits do not come", time.Minute, 30_000, true, 0, 2.5 * 30_000},
			{"and come again", time.Minute, 30_000, false, 0.8, 3 * 30_000},
			{"very slow", 30 * time.Minute, 100, false, 0.95, least + atOnce*each},
		} {
			done, most := lane.during(tt.long, tt.rate, tt.silent)
			if can := tt.rate * tt.long.Seconds(); float64(done) < tt.least*can || float64(most) > tt.most {
				t.Errorf("%s: %d of %.0f were done, and %d waited of %.0f that may", tt.why, done, can, most, tt.most)
			}
		}
		stop()
		running.Wait()
	})
}

// What is learned of workers from two answers.
func TestWhatWorkersDo(t *testing.T) {
	at := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		why         string
		after       time.Duration
		last, now   Backlog
		drain, want float64
	}{
		{"they did more than was believed", time.Second, Backlog{0, 100}, Backlog{0, 500}, 200, 300},
		{"they had too little to do", time.Second, Backlog{0, 100}, Backlog{500, 200}, 200, 200},
		{"they have too little left", time.Second, Backlog{500, 100}, Backlog{20, 200}, 200, 200},
		{"they did less, and have work left", time.Second, Backlog{500, 100}, Backlog{21, 200}, 200, 150},
		{"they do nothing", 2 * time.Second, Backlog{1, 100}, Backlog{1, 100}, 200, 100},
		{"it was long ago", stale + time.Second, Backlog{0, 100}, Backlog{0, 5000}, 200, 200},
		{"another topic of that name", time.Second, Backlog{500, 1000}, Backlog{500, 0}, 200, 200},
	} {
		p := newPace("promotional", nil, &Limits{})
		p.asked, p.last, p.drain = at, tt.last, tt.drain
		if p.learn(at.Add(tt.after), tt.now); p.drain != tt.want {
			t.Errorf("%s: %v a second, want %v", tt.why, p.drain, tt.want)
		}
	}
	p := newPace("promotional", nil, &Limits{})
	if p.learn(at, Backlog{0, 5000}); p.drain != 0 {
		t.Errorf("from the first answer: %v a second", p.drain)
	}
}
