package fanout

import (
	"context"
	"encoding/binary"
	"errors"
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
	return Backlog{0: {w.written() - w.said, w.base + w.said}}, nil
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

// A message to few has as many parts as one to many: they go one after the other, and none waits
// for the next look.
func TestSmallPartsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(nil, func(l *Limits) { l.Lag, l.LagTime, l.Page, l.Records = 1_000_000, 2*time.Second, 2000, 20_000 })
		written := new(counting)
		w.Emitter.Audience, w.Emitter.Producer = pagesOf(manyUsers(2), 2000), written
		w.pace.lag = &workers{written: written.Load, rate: 1000}
		began := time.Now()
		for i := range 256 {
			j := aliveJob(t, func(j *Job) { binary.BigEndian.PutUint32(j.Message[12:], uint32(i)) })
			if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > time.Second || written.Load() != 512 {
			t.Errorf("%d records took %v", written.Load(), took)
		}
	})
}

// What is learned of workers from two answers, of one partition.
func TestWhatWorkersDo(t *testing.T) {
	at := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		why        string
		after      time.Duration
		last, now  Standing
		rate, want float64
	}{
		{"they did more than was believed", time.Second, Standing{0, 100}, Standing{0, 500}, 200, 300},
		{"they had too little to do", time.Second, Standing{0, 100}, Standing{500, 200}, 200, 200},
		{"they have too little left", time.Second, Standing{500, 100}, Standing{20, 200}, 200, 200},
		{"they did less, and have work left", time.Second, Standing{500, 100}, Standing{21, 200}, 200, 150},
		{"they do nothing", 2 * time.Second, Standing{1, 100}, Standing{1, 100}, 200, 100},
		{"it was long ago", stale + time.Second, Standing{0, 100}, Standing{0, 5000}, 200, 200},
		{"another topic of that name", time.Second, Standing{500, 1000}, Standing{500, 0}, 200, 200},
		{"somebody has moved the offset", time.Second, Standing{0, 100}, Standing{0, 5_000_100}, 200, 5_300},
	} {
		d := drain{rate: tt.rate, last: Backlog{0: tt.last}, moving: tt.last.Behind, heard: at, passed: map[int32]time.Time{0: at}}
		if d.learn(at.Add(tt.after), Backlog{0: tt.now}); d.rate != tt.want {
			t.Errorf("%s: %v a second, want %v", tt.why, d.rate, tt.want)
		}
	}
	d := drain{}
	if d.learn(at, Backlog{0: {0, 5000}}); d.rate != 0 {
		t.Errorf("from the first answer: %v a second", d.rate)
	}
	if d.learn(at.Add(time.Second), Backlog{0: {0, 6000}, 1: {0, 1_000_000}}); d.rate != 500 {
		t.Errorf("with another partition: %v a second", d.rate)
	}
}

// A partition that stands still keeps nothing waiting but what is its own, unless all do: then
// nobody works.
func TestPartitionsThatStandStill(t *testing.T) {
	at := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	d := drain{}
	look := func(after time.Duration, b Backlog, moving, stuck int64) {
		t.Helper()
		at = at.Add(after)
		if m, s := d.learn(at, b); m != moving || s != stuck {
			t.Errorf("%d move and %d stand still, want %d and %d", m, s, moving, stuck)
		}
	}
	look(0, Backlog{0: {500, 10}, 1: {300, 10}, 2: {0, 0}}, 800, 0)
	look(9*time.Second, Backlog{0: {500, 10}, 1: {300, 11}, 2: {0, 0}}, 800, 0)
	look(time.Second, Backlog{0: {600, 10}, 1: {300, 12}, 2: {0, 0}}, 300, 600)
	look(9*time.Second, Backlog{0: {600, 10}, 1: {0, 312}, 2: {0, 0}}, 0, 600)            // and nothing else is to do
	look(time.Second, Backlog{0: {600, 10}, 1: {50, 312}, 2: {40, 0}}, 90, 600)           // what is new moves at first
	look(10*time.Second, Backlog{0: {600, 10}, 1: {50, 312}, 2: {40, 0}}, 690, 0)         // nobody works
	look(time.Second, Backlog{0: {600, 10}, 1: {50, 312}, 2: {40, 0}, 3: {7, 0}}, 7, 690) // a new partition
	look(time.Second, Backlog{0: {599, 11}, 1: {0, 362}, 2: {0, 40}, 3: {0, 7}}, 599, 0)
	look(9*time.Second, Backlog{0: {0, 610}, 1: {0, 362}, 2: {0, 40}, 3: {0, 7}}, 0, 0)
	look(2*time.Second, Backlog{0: {0, 610}, 1: {80, 362}, 2: {0, 40}, 3: {0, 7}}, 80, 0) // what came just now
	look(time.Hour, Backlog{0: {0, 610}, 1: {80, 362}, 2: {0, 40}, 3: {0, 7}}, 80, 0)     // nobody has looked in between
}

// One stopped partition of eight lets a fan-out go on: it gets its eighth, up to lag.
func TestPacedBesideAStoppedPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lane := &stopped{rate: 2000}
		p := newPace("promotional", lane, &Limits{Lag: 20_000, LagTime: 2 * time.Second})
		began := 0
		for range 600 {
			behind, err := p.behind(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if !behind {
				began++
				p.produced(800)
				lane.write(800)
			}
			time.Sleep(time.Second)
			lane.work()
		}
		// Its part is full after 200 chunks of which it gets 100 records each.
		if began < 190 || began > 210 || lane.behind[0] > 20_100 {
			t.Errorf("%d chunks began, and %d wait in the partition that stands still", began, lane.behind[0])
		}
	})
}

// Who waits for another's question about the lane leaves when he is told to, however long the
// answer takes.
func TestLeavingWhileTheLaneIsAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lag := make(mute)
		p := newPace("promotional", lag, &Limits{Lag: 1000})
		first := make(chan error, 1)
		go func() {
			_, err := p.behind(t.Context(), nil)
			first <- err
		}()
		synctest.Wait()
		leaving := make(chan struct{})
		close(leaving)
		if _, err := p.behind(t.Context(), leaving); !errors.Is(err, errLeaving) {
			t.Errorf("leaving: %v", err)
		}
		close(lag)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// mute answers when it is closed.
type mute chan struct{}

func (m mute) Lag(ctx context.Context, _ string) (Backlog, error) {
	select {
	case <-m:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stopped is a lane of eight partitions, of which nobody works on the first.
type stopped struct {
	rate   int64 // a second, of all others
	behind [8]int64
	passed [8]int64
}

func (s *stopped) write(records int64) {
	for i := range s.behind {
		s.behind[i] += records / 8
	}
}

func (s *stopped) work() {
	for i := 1; i < 8; i++ {
		n := min(s.behind[i], s.rate/7)
		s.behind[i], s.passed[i] = s.behind[i]-n, s.passed[i]+n
	}
}

func (s *stopped) Lag(context.Context, string) (Backlog, error) {
	b := Backlog{}
	for i := range s.behind {
		b[int32(i)] = Standing{s.behind[i], s.passed[i]}
	}
	return b, nil
}
