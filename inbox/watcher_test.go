package inbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines are news that can fail.
type lines struct {
	mu    sync.Mutex
	now   []Line // guarded by mu
	err   error  // guarded by mu
	looks int    // guarded by mu
}

func (l *lines) News(context.Context) ([]Line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	return append([]Line(nil), l.now...), l.err
}

func (l *lines) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.looks
}

// inBubble runs a test with a Watcher that looks once a second.
func inBubble(t *testing.T, most int, test func(t *testing.T, w *Watcher, l *lines)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lines{}
		w := NewWatcher(WatcherOptions{News: l, Most: most, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		test(t, w, l)
		cancel()
		running.Wait()
	})
}

// One look a second serves all who wait, however many there are, and nobody looks while
// nobody waits. Each line is told once.
func TestOneLookServesAll(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *Watcher, l *lines) {
		time.Sleep(time.Hour)
		if n := l.count(); n != 0 {
			t.Errorf("%d looks while nobody waits", n)
		}
		var told sync.Map
		var waiting sync.WaitGroup
		var ends []*Wait
		for i := range 10_000 {
			one, err := w.Wait(uint64(i), uint64(100_000+i%10))
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, one)
			waiting.Go(func() {
				if one.Next(t.Context(), time.After(30*time.Second)) {
					told.Store(i, time.Now())
				}
			})
		}
		if _, err := w.Wait(1); !errors.Is(err, ErrTooMany) {
			t.Errorf("one more than may wait: %v", err)
		}
		time.Sleep(10 * time.Second)
		before := l.count()
		at := time.Now()
		l.set(func() { l.now = []Line{{7, at}, {99_999, at}, {100_003, at}} })
		waiting.Wait()
		count := 0
		told.Range(func(i, when any) bool {
			count++
			if n := i.(int); n != 7 && n%10 != 3 || when.(time.Time).Sub(at) > time.Second {
				t.Errorf("%d was told %v later", n, when.(time.Time).Sub(at))
			}
			return true
		})
		if count != 1001 {
			t.Errorf("%d were told", count)
		}
		if n := l.count() - before; n < 19 || n > 21 {
			t.Errorf("%d looks in 20 s", n)
		}
		for range 2 {
			for _, one := range ends {
				one.Close()
			}
		}
		if w.Waiting() != 0 || len(w.waiting) != 0 {
			t.Errorf("%d wait, for %d keys", w.Waiting(), len(w.waiting))
		}
		time.Sleep(time.Minute)
		before = l.count()
		time.Sleep(time.Hour)
		if l.count() != before {
			t.Error("it looks when nobody waits any more")
		}
	})
}

// Who waits often for one inbox takes no place of others.
func TestFewWaitForOne(t *testing.T) {
	inBubble(t, 100, func(t *testing.T, w *Watcher, _ *lines) {
		var ends []*Wait
		for range mostOfOne {
			one, err := w.Wait(1, 2)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, one)
		}
		if _, err := w.Wait(1); !errors.Is(err, ErrTooMany) {
			t.Errorf("one more for the same inbox: %v", err)
		}
		other, err := w.Wait(3, 2)
		if err != nil {
			t.Fatalf("for another: %v", err)
		}
		ends[0].Close()
		again, err := w.Wait(1)
		if err != nil {
			t.Fatalf("after one has gone: %v", err)
		}
		for _, one := range append(ends, other, again) {
			one.Close()
		}
		if w.Waiting() != 0 {
			t.Errorf("%d wait", w.Waiting())
		}
	})
}

// The same line is told once, one by a clock that is behind, too; and what cannot be read
// is told when it can be.
func TestALineIsToldOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, w *Watcher, l *lines) {
		one, err := w.Wait(1)
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		next := func(want bool) {
			t.Helper()
			if got := one.Next(t.Context(), time.After(5*time.Second)); got != want {
				t.Errorf("told %v, want %v", got, want)
			}
		}
		at := time.Now()
		next(false)
		l.set(func() { l.now = []Line{{1, at}} })
		next(true)
		next(false)
		l.set(func() { l.now = append(l.now, Line{1, at.Add(-time.Second)}) })
		next(true)
		l.set(func() { l.err, l.now = errors.New("away"), []Line{{1, at.Add(time.Second)}} })
		next(false)
		l.set(func() { l.err = nil })
		next(true)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if one.Next(ended, nil) {
			t.Error("told of one who has gone")
		}
	})
}

// When it is closed all who wait are answered, and nobody waits any more.
func TestAClosedWatcher(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *Watcher, _ *lines) {
		one, err := w.Wait(1)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if one.Next(t.Context(), nil) {
				t.Error("there is something new")
			}
		})
		synctest.Wait()
		w.Close()
		waiting.Wait()
		late, err := w.Wait(1)
		if err != nil || late.Next(t.Context(), nil) || time.Since(start) != 0 {
			t.Errorf("one who comes later waits: %v, %v", time.Since(start), err)
		}
		one.Close()
		late.Close()
		if w.Waiting() != 0 {
			t.Error("somebody waits")
		}
	})
}
