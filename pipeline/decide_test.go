package pipeline_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

var policy = pipeline.Policy{MaxRetries: 3, RetryDelays: []time.Duration{30 * time.Second, 5 * time.Minute, 30 * time.Minute}}

// heldFor is a delivery that was not sent because its route is stopped for so
// long.
func heldFor(d time.Duration) push.Result {
	r := push.Result{Class: push.Held, Scope: push.ScopeRoute, Reason: string(push.RouteStopped)}
	if d > 0 {
		r.Until = push.At(startTime.Add(d))
	}
	return r
}

// What is held is due when its route's pause is over, after 30 s at least and 5
// minutes at the most, however often it was held before.
func TestHeldUntilThePauseIsOver(t *testing.T) {
	halted := badKey
	halted.Until = push.At(startTime.Add(2 * time.Minute))
	for _, row := range []struct {
		why     string
		r       push.Result
		expires time.Duration // 0 = never
		due     time.Duration // 0 = ends EXPIRED
	}{
		{"nobody knows how long", heldFor(0), 0, 30 * time.Second},
		{"a short pause", heldFor(6 * time.Second), 0, 30 * time.Second},
		{"the pause", heldFor(100 * time.Second), 0, 100 * time.Second},
		{"a long one", heldFor(time.Hour), 0, 5 * time.Minute},
		{"refused credentials", halted, 0, 2 * time.Minute},
		{"Apple's key at Google: the route is not stopped, and somebody has to put it right", appleKey, 0, 5 * time.Minute},
		{"useless by then", heldFor(100 * time.Second), 99 * time.Second, 0},
		{"not yet useless then", heldFor(100 * time.Second), 100 * time.Second, 100 * time.Second},
		{"it expires before it may come back", heldFor(0), 29 * time.Second, 0},
	} {
		var expires time.Time
		if row.expires > 0 {
			expires = startTime.Add(row.expires)
		}
		want := pipeline.Ending{State: push.StateHeld, Reason: push.Reason(row.r.Reason), NotBefore: push.At(startTime.Add(row.due))}
		if row.due == 0 {
			want = pipeline.Ending{State: push.StateExpired, Reason: push.PastExpiry}
		}
		for _, attempt := range []int{0, 3} { // no attempt is counted
			if got := policy.Decide(&row.r, attempt, expires, startTime); got != want {
				t.Errorf("%s, after %d attempts: %+v, want %+v", row.why, attempt, got, want)
			}
		}
	}
}

// The whole retry policy, by answer.
func TestDecide(t *testing.T) {
	asked := func(r push.Result, after time.Duration) push.Result { r.After = after; return r }
	ended := func(s push.State, r push.Reason) pipeline.Ending { return pipeline.Ending{State: s, Reason: r} }
	retried := func(r push.Result, after time.Duration) pipeline.Ending {
		return pipeline.Ending{State: push.StateRetrying, Reason: push.Reason(r.Reason), NotBefore: push.At(startTime.Add(after))}
	}
	const never = 1000 * time.Hour
	panicked := push.Result{Class: push.Refused, Panic: &push.PanicError{}}
	brokenAndHalted := badKey
	brokenAndHalted.Certainty = push.Ambiguous
	for _, row := range []struct {
		why     string
		r       push.Result
		attempt int
		expires time.Duration
		want    pipeline.Ending
		drops   pipeline.Ending // where the lane drops what is ambiguous; zero = the same
	}{
		{"accepted", good, 3, never, ended(push.StateDelivered, ""), pipeline.Ending{}},
		{"another record's", push.Result{Class: push.Claimed}, 0, never, pipeline.Ending{}, pipeline.Ending{}},
		{"a dead token", gone, 0, never, ended(push.StateFailed, "UNREGISTERED"), pipeline.Ending{}},
		{"refused", refused, 0, never, ended(push.StateFailed, "PayloadTooLarge"), pipeline.Ending{}},
		{"a message that crashes our code", panicked, 0, never, ended(push.StateDeadLettered, push.Panicked), pipeline.Ending{}},
		{"given back too late", expired, 0, never, ended(push.StateExpired, push.PastExpiry), pipeline.Ending{}},

		{"not now: the first tier", away, 0, never, retried(away, 30*time.Second), pipeline.Ending{}},
		{"again: the second", away, 1, never, retried(away, 5*time.Minute), pipeline.Ending{}},
		{"and the third", away, 2, never, retried(away, 30*time.Minute), pipeline.Ending{}},
		{"retries used up", away, 3, never, ended(push.StateDeadLettered, push.RetriesUsed), pipeline.Ending{}},
		{"sooner than the tier was asked for", asked(tooMany, 10*time.Second), 1, never, retried(tooMany, 5*time.Minute), pipeline.Ending{}},
		{"later than the tier was", asked(tooMany, 7*time.Minute), 0, never, retried(tooMany, 7*time.Minute), pipeline.Ending{}},
		{"due when it expires", away, 0, 30 * time.Second, retried(away, 30*time.Second), pipeline.Ending{}},
		{"due after it expired", away, 0, 30*time.Second - 1, ended(push.StateExpired, push.PastExpiry), pipeline.Ending{}},
		{"asked to come after it expired", asked(tooMany, time.Hour), 0, 59 * time.Minute, ended(push.StateExpired, push.PastExpiry), pipeline.Ending{}},

		{"nobody knows", timedOut, 0, never, retried(timedOut, 30*time.Second), ended(push.StateUnknown, "timeout")},
		{"nobody knows, at the last attempt", timedOut, 3, never, ended(push.StateDeadLettered, push.RetriesUsed), ended(push.StateUnknown, "timeout")},
		{"nobody knows, and it expires", timedOut, 0, time.Second, ended(push.StateExpired, push.PastExpiry), ended(push.StateUnknown, "timeout")},
		{"nobody knows, of one device", vague, 0, never, retried(vague, 30*time.Second), ended(push.StateUnknown, "http_500")},
		{"nobody knows, and the route is halted", brokenAndHalted, 0, never,
			pipeline.Ending{State: push.StateHeld, Reason: "PERMISSION_DENIED", NotBefore: push.At(startTime.Add(30 * time.Second))}, ended(push.StateUnknown, "PERMISSION_DENIED")},
	} {
		for _, drop := range []bool{false, true} {
			p, want := policy, row.want
			if p.DropAmbiguous = drop; drop && row.drops != (pipeline.Ending{}) {
				want = row.drops
			}
			if got := p.Decide(&row.r, row.attempt, startTime.Add(row.expires), startTime); got != want {
				t.Errorf("%s (dropped if ambiguous: %v): %+v, want %+v", row.why, drop, got, want)
			}
		}
	}
	if got := policy.Decide(&away, 0, time.Time{}, startTime); got != retried(away, 30*time.Second) {
		t.Errorf("without an expiry: %+v", got)
	}
}

// silent answers nothing in time, once and again.
type silent struct {
	provider
	sent map[string]int // by device; guarded by w.mu
}

func (p *silent) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.w.mu.Lock()
		p.sent[d.Device.Hash]++
		p.w.mu.Unlock()
		p.out.Go(func() {
			time.Sleep(time.Millisecond)
			d.Result = timedOut
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

// In a lane that says so, and always where nothing may come twice, what may have
// been accepted is neither sent again nor handed over to be.
func TestWhatIsAmbiguousEndsWhereTheLaneSaysSo(t *testing.T) {
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1)
			w.faults, w.once, w.drops = false, once, true
			w.fill(1, 10) // too few to stop the route
			apns := &silent{provider: provider{w: w}, sent: map[string]int{}}
			p := w.pipelineTo(t, 50, apns, apns)
			p.Options().Stages[0] = oneDevice{}
			ctx, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = p.Run(ctx) })
			w.wait(t)
			time.Sleep(time.Minute)
			stop()
			run.Wait()
			apns.out.Wait()
			unknown := 0
			for id, rows := range w.rows {
				for _, r := range rows {
					if r.State == push.StateUnknown {
						unknown++
					} else if r.State != push.StateSending {
						t.Errorf("once %v: %s is %v", once, id, r.State)
					}
				}
			}
			if unknown != 10 || len(apns.sent) != 10 || len(w.retried)+len(w.held) > 0 {
				t.Errorf("once %v: %d UNKNOWN, %d sent, retries %v, held %v", once, unknown, len(apns.sent), w.retried, w.held)
			}
		})
	}
}

func TestOnceNeverSendsAgain(t *testing.T) {
	w := newWorld(1)
	_, err := pipeline.New(pipeline.Options{Source: w, Producer: w, Status: w, Ledger: w, Seen: w, Once: true,
		Policy: pipeline.Policy{MaxRetries: 3, RetryDelays: []time.Duration{time.Minute}}, StageWorkers: 1, Window: 1,
		SendDeadline: time.Second, StatusTimeout: time.Second, Drain: time.Minute, CommitTimeout: time.Second, CommitInterval: time.Second,
		Metrics: pipeline.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "ambiguous") {
		t.Errorf("an at_most_once lane that resends ambiguous sends: got error %v", err)
	}
}
