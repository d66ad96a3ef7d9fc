package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// world is a Deliverer with an endpoint and dead letters in the hands of a test.
type world struct {
	*Deliverer
	t    *testing.T
	text atomic.Pointer[string]
	// answer says what the endpoint answers; the n-th call of all, from 1.
	answer func(n int, c *Call) Answer

	mu     sync.Mutex
	calls  []Call      // guarded by mu
	at     []time.Time // guarded by mu; when each call came
	to     []string    // guarded by mu; the URL of each
	buried []string    // guarded by mu
	full   error       // guarded by mu; what Bury returns
}

func newWorld(t *testing.T, answer func(n int, c *Call) Answer) *world {
	t.Helper()
	w := &world{t: t, answer: answer}
	w.file(entry("orders", "https://x.example/", secretA))
	endpoints, err := OpenEndpoints(func() ([]byte, error) { return []byte(*w.text.Load()), nil }, CheckAddress)
	if err != nil {
		t.Fatal(err)
	}
	w.Deliverer = NewDeliverer(Options{Endpoints: endpoints, Poster: w, Dead: w, Keep: time.Hour,
		Metrics: NewMetrics(prometheus.NewRegistry(), []string{"orders"}), Log: slog.New(slog.DiscardHandler)})
	return w
}

func (w *world) file(entries ...string) {
	text := fileOf(entries...)
	w.text.Store(&text)
	if w.Deliverer != nil {
		if _, err := w.o.Endpoints.Reload(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Post implements Poster.
func (w *world) Post(ctx context.Context, to *Endpoint, c *Call) Answer {
	w.mu.Lock()
	w.calls, w.at, w.to = append(w.calls, *c), append(w.at, time.Now()), append(w.to, to.URL)
	n := len(w.calls)
	w.mu.Unlock()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return Answer{Word: "given up"}
	}
	return w.answer(n, c)
}

// called is how many calls have come.
func (w *world) called() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

// Bury implements Dead.
func (w *world) Bury(_ context.Context, e *Event, why Reason, detail string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full == nil {
		w.buried = append(w.buried, fmt.Sprintf("%s %s %s", e.Value, why, detail))
	}
	return w.full
}

func event(n int) *Event {
	return &Event{Sender: "orders", Value: fmt.Appendf(nil, "%d", n), At: time.Now(), Leaving: make(chan struct{})}
}

func status(n int) Answer { return Answer{Status: n, Word: fmt.Sprint("answered ", n)} }

// An endpoint that fails gets the event again, with the same id and later and later, until
// it takes it.
func TestDeliveriesAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(n int, _ *Call) Answer {
			return []Answer{{}, status(500), status(302), {Word: "no answer in time"}, status(404), status(204)}[n]
		})
		if err := w.Deliver(t.Context(), event(1)); err != nil {
			t.Fatal(err)
		}
		if len(w.calls) != 5 || len(w.buried) > 0 {
			t.Fatalf("%d calls, buried %q", len(w.calls), w.buried)
		}
		for i := 1; i < len(w.calls); i++ {
			pause := w.at[i].Sub(w.at[i-1]) - 100*time.Millisecond
			if least := time.Second << (i - 1); w.calls[i].ID != w.calls[0].ID || w.calls[i].ID == "" || pause < least || pause > 2*least+time.Second {
				t.Errorf("call %d: id %s after %v", i, w.calls[i].ID, pause)
			}
			if !w.calls[i].At.Equal(w.at[i]) {
				t.Errorf("call %d is signed for %v, and was at %v", i, w.calls[i].At, w.at[i])
			}
		}
		for result, want := range map[string]float64{"delivered": 1, "failed": 1, "refused": 2, "unreachable": 1} {
			if got := testutil.ToFloat64(w.o.Metrics.calls.WithLabelValues("orders", result)); got != want {
				t.Errorf("%v calls %s, want %v", got, result, want)
			}
		}
	})
}

// While an endpoint is down, one event at a time goes to see; once it is back all go.
func TestAnEndpointThatIsDownIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		w := newWorld(t, func(int, *Call) Answer {
			if back.Load() {
				return status(200)
			}
			return status(502)
		})
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if err := w.Deliver(t.Context(), event(i)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(20 * time.Minute)
		if n := w.called(); n < 55 || n > 65 {
			t.Errorf("%d calls in 20 minutes to an endpoint that is down, 50 of them together", n)
		}
		if got := testutil.ToFloat64(w.o.Metrics.rests.WithLabelValues("orders")); got != 1 {
			t.Errorf("resting: %v", got)
		}
		back.Store(true)
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > 6*time.Minute {
			t.Errorf("all were there %v after it was back", took)
		}
		if len(w.buried) > 0 || testutil.ToFloat64(w.o.Metrics.rests.WithLabelValues("orders")) != 0 {
			t.Errorf("buried %q", w.buried)
		}
	})
}

// An event that an endpoint refuses, while it takes others, keeps none of them waiting,
// and ends as a dead letter.
func TestARefusedEventKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(_ int, c *Call) Answer {
			if string(c.Body) == "13" {
				return status(400)
			}
			return status(200)
		})
		done := make(chan error, 1)
		go func() { done <- w.Deliver(t.Context(), event(13)) }()
		slowest := time.Duration(0)
		ended := false
		for i := 100; !ended; i++ {
			began := time.Now()
			if err := w.Deliver(t.Context(), event(i)); err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(began))
			time.Sleep(time.Second)
			select {
			case err := <-done:
				ended = true
				if err != nil {
					t.Error(err)
				}
			default:
			}
		}
		if slowest > 200*time.Millisecond {
			t.Errorf("another one took %v", slowest)
		}
		if len(w.buried) != 1 || w.buried[0] != "13 refused answered 400" {
			t.Errorf("buried %q", w.buried)
		}
		refused := 0
		for _, c := range w.calls {
			if string(c.Body) == "13" {
				refused++
			}
		}
		if refused < refusals || refused > refusals+1 {
			t.Errorf("tried %d times, want some %d", refused, refusals)
		}
	})
}

// What an endpoint asks for, it gets.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(n int, _ *Call) Answer {
			if n == 1 {
				return Answer{Status: http.StatusTooManyRequests, RetryAfter: 10 * time.Minute}
			}
			return status(200)
		})
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if err := w.Deliver(t.Context(), event(i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if gap := w.at[1].Sub(w.at[0]); gap < 10*time.Minute {
			t.Errorf("called again after %v", gap)
		}
		if len(w.calls) != 4 {
			t.Errorf("%d calls", len(w.calls))
		}
	})
}

// Who waits for an endpoint that rests goes to the one that the file has by then: at once,
// whatever the former one asked for, and not to one that is no longer there.
func TestWhoWaitsGoesToTheEndpointThatIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(n int, _ *Call) Answer {
			if n == 1 {
				return Answer{Status: http.StatusTooManyRequests, RetryAfter: 40 * time.Minute}
			}
			return status(200)
		})
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if err := w.Deliver(t.Context(), event(i)); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Minute)
		w.file()
		time.Sleep(45 * time.Minute)
		if n := w.called(); n != 1 {
			t.Errorf("%d calls of an endpoint that is gone from the file: %q", n, w.to)
		}
		w.file(entry("orders", "https://y.example/", secretA))
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the other endpoint had all after %v", took)
		}
		if got := strings.Join(w.to, " "); got != "https://x.example/ https://y.example/ https://y.example/ https://y.example/" || len(w.buried) > 0 {
			t.Errorf("called %s, buried %q", got, w.buried)
		}
	})
}

// What a former endpoint has refused says nothing of the one that the file has since: there an
// event may fail as often as any other.
func TestAnotherEndpointHasRefusedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		refused, there := 0, 0 // guarded by w.mu; answers of the former endpoint to 13, and of the other one
		w = newWorld(t, func(n int, c *Call) Answer {
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case string(c.Body) != "13":
			case w.to[n-1] == "https://x.example/":
				refused++
				return status(400)
			default:
				if there++; there == 1 {
					return status(500)
				}
			}
			return status(200)
		})
		done := make(chan error, 1)
		go func() {
			time.Sleep(50 * time.Millisecond) // others are taken while it is on its way
			done <- w.Deliver(t.Context(), event(13))
		}()
		for n := 100; len(done) == 0; n++ {
			if err := w.Deliver(t.Context(), event(n)); err != nil {
				t.Fatal(err)
			}
			w.mu.Lock()
			almost := refused == refusals-1
			w.mu.Unlock()
			if almost {
				w.file(entry("orders", "https://y.example/", secretA))
			}
		}
		if err := <-done; err != nil || len(w.buried) > 0 || there != 2 {
			t.Errorf("%v after %d calls of the other one, buried %q", err, there, w.buried)
		}
	})
}

// The same without a time in between.
func TestWhoWaitsHearsOfAnotherEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(n int, _ *Call) Answer {
			if n == 1 {
				return Answer{Status: http.StatusTooManyRequests, RetryAfter: 40 * time.Minute}
			}
			return status(200)
		})
		time.AfterFunc(time.Minute, func() { w.file(entry("orders", "https://y.example/", secretA)) })
		began := time.Now()
		if err := w.Deliver(t.Context(), event(1)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 62*time.Second || w.to[1] != "https://y.example/" {
			t.Errorf("called %q, after %v", w.to, took)
		}
	})
}

// 410 ends it, until the endpoint is another one. Nothing is lost: what was not delivered
// is a dead letter.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(n int, _ *Call) Answer {
			if n == 1 {
				return status(410)
			}
			return status(200)
		})
		for i := range 2 {
			if err := w.Deliver(t.Context(), event(i)); err != nil {
				t.Fatal(err)
			}
		}
		w.file(entry("orders", "https://y.example/", secretA))
		if err := w.Deliver(t.Context(), event(2)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.buried, ", "); got != "0 gone answered 410, 1 gone answered 410 before" || len(w.calls) != 2 {
			t.Errorf("buried %q after %d calls", got, len(w.calls))
		}
		if got := testutil.ToFloat64(w.o.Metrics.dead.WithLabelValues("orders", "gone")); got != 2 {
			t.Errorf("%v dead letters are counted", got)
		}
	})
}

// An event that nobody took in time is a dead letter, after one attempt at least.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(int, *Call) Answer { return status(500) })
		old := event(1)
		old.At = time.Now().Add(-48 * time.Hour)
		if err := w.Deliver(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		if len(w.calls) != 1 || len(w.buried) != 1 {
			t.Errorf("%d calls, buried %q", len(w.calls), w.buried)
		}
		fresh := event(2)
		began := time.Now()
		if err := w.Deliver(t.Context(), fresh); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Hour || took > 70*time.Minute || w.buried[1] != "2 expired answered 500" {
			t.Errorf("given up after %v: %q", took, w.buried)
		}
	})
}

// Who has no endpoint is waited for, and what is no JSON is not posted.
func TestWithoutAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(int, *Call) Answer { return status(200) })
		w.file()
		done := make(chan error, 2)
		go func() { done <- w.Deliver(t.Context(), event(1)) }()
		time.Sleep(59 * time.Minute)
		if len(w.calls)+len(w.buried) > 0 {
			t.Errorf("%d calls, buried %q", len(w.calls), w.buried)
		}
		w.file(entry("orders", "https://x.example/", secretA))
		if err := <-done; err != nil || len(w.calls) != 1 {
			t.Errorf("%v, %d calls", err, len(w.calls))
		}
		w.file()
		if err := w.Deliver(t.Context(), event(2)); err != nil || w.buried[0] != "2 no_endpoint " {
			t.Errorf("%v, buried %q", err, w.buried)
		}
		for _, value := range []string{"", "{", `{"a":1}x`, `"` + strings.Repeat("x", MaxEvent) + `"`} {
			e := event(3)
			e.Value = []byte(value)
			if err := w.Deliver(t.Context(), e); err != nil {
				t.Error(err)
			}
		}
		if len(w.buried) != 5 || !strings.HasSuffix(w.buried[4], " unreadable ") || len(w.calls) != 1 {
			t.Errorf("%d buried, %d calls", len(w.buried), len(w.calls))
		}
	})
}

// A dead letter that is not durable, a partition that leaves and a process that stops
// leave the event to be delivered again.
func TestWhatIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(int, *Call) Answer { return status(410) })
		w.full = errors.New("Kafka is away")
		if err := w.Deliver(t.Context(), event(1)); !errors.Is(err, w.full) {
			t.Errorf("ended with %v", err)
		}
		w = newWorld(t, func(int, *Call) Answer { return status(503) })
		leaving := make(chan struct{})
		e := event(1)
		e.Leaving = leaving
		time.AfterFunc(time.Minute, func() { close(leaving) })
		if err := w.Deliver(t.Context(), e); !errors.Is(err, errLeaving) {
			t.Errorf("ended with %v", err)
		}
		for _, file := range []string{entry("orders", "https://x.example/", secretA), ""} {
			if file == "" {
				w.file()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			w.answer = func(int, *Call) Answer { return status(200) }
			if err := w.Deliver(ctx, event(2)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("ended with %v", err)
			}
			cancel()
		}
		w.file(entry("orders", "https://x.example/", secretA))
		if err := w.Deliver(t.Context(), event(3)); err != nil { // who went to see and was stopped, blocks nobody
			t.Error(err)
		}
	})
}
