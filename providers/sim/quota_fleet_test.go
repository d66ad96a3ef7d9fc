package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/providers/calls"
	nouns "github.com/pushfleet/pushfleet/push"
	fleetrate "github.com/pushfleet/pushfleet/rates"
	"github.com/pushfleet/pushfleet/shards"
)

// queuing is workers of a fleet in virtual time, with their gates, a rate that they share and
// as much to send to the project as it lets through.
type queuing struct {
	*stand
	redis   *embedded.Redis
	base    float64
	window  time.Duration
	started time.Time
	epoch   time.Time // that moment by the simulator's clock
	ctx     context.Context
	running sync.WaitGroup

	mu       sync.Mutex // guards the stand's policy and clock, and all below
	accepted map[time.Time]int
	refused  map[time.Time]int // both by the end of the project's window
}

// join adds a worker.
func (q *queuing) join(name string) {
	q.t.Helper()
	route := nouns.Route{Platform: nouns.FCM, App: "shop"}
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{q.redis.Addr()}, q.redis.Dial
	client, err := shards.Open(o)
	if err != nil {
		q.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	rs, err := fleetrate.New(client, map[nouns.Route]fleetrate.Counted{route: {Name: "fcm/shop", Base: q.base, Window: q.window}}, fleetrate.Options{
		Fleet: "f", Member: name, Factors: fleetrate.DefaultFactors(), Metrics: fleetrate.NewMetrics(prometheus.NewRegistry()), Log: log})
	if err != nil {
		q.t.Fatal(err)
	}
	store, err := pauses.New(client, pauses.Options{Fleet: "f", Longest: time.Hour, Log: log})
	if err != nil {
		q.t.Fatal(err)
	}
	options := gates.DefaultOptions()
	options.Rates = map[nouns.Route]gates.Rate{route: rs.Of(route)}
	gs, err := gates.New([]nouns.Route{route}, options, gates.NewMetrics(prometheus.NewRegistry()), log, time.Now())
	if err != nil {
		q.t.Fatal(err)
	}
	limits := new(calls.Limits)
	limits.Listen(rs.Of(route).Announced)
	var sharing sync.WaitGroup
	sharing.Go(func() { rs.Run(q.ctx) })
	sharing.Go(func() { gs.Share(q.ctx, store) })
	q.running.Go(func() { q.work(gs.Of(route), limits) })
	q.running.Go(func() { sharing.Wait(); _ = client.Close() })
}

// work sends by groups until the fleet ends.
func (q *queuing) work(gate *gates.Gate, limits *calls.Limits) {
	const group, latency = 16, 60 * time.Millisecond
	var answers sync.WaitGroup
	defer answers.Wait()
	for q.ctx.Err() == nil {
		now := time.Now()
		ticket, n, again, _ := gate.Admit(now, gates.Free, false, group)
		if n == 0 {
			time.Sleep(min(max(again.Sub(now), time.Millisecond), 50*time.Millisecond)) // as pipeline.submit does
			continue
		}
		answered := make([]*Answer, n)
		for i := range answered {
			answered[i] = q.reach()
		}
		answers.Go(func() {
			time.Sleep(latency)
			back := make([]gates.Answer, n)
			for i, a := range answered {
				back[i] = gates.Answer{Ticket: ticket, Result: heard(a, limits)}
			}
			gates.Return(time.Now(), back)
		})
	}
}

// reach sends one push, and counts what becomes of it.
func (q *queuing) reach() *Answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock = q.epoch.Add(time.Since(q.started)) // far from the workers' own
	ans, ends := q.do(q.send()), windowEnd(q.window, q.clock, q.policy.offset)
	switch ans.Status {
	case 200:
		q.accepted[ends]++
	case 429:
		q.refused[ends]++
	default:
		q.t.Errorf("answered %d: %s", ans.Status, ans.Body)
	}
	return ans
}

// heard is what a worker's client makes of an answer.
func heard(a *Answer, limits *calls.Limits) *nouns.Result {
	var values [][]byte
	for _, name := range calls.LimitHeaders() {
		values = append(values, []byte(a.value(name)))
	}
	limits.Heard(values, []byte(a.value("date")))
	if a.Status == 200 {
		return &nouns.Result{Class: nouns.Delivered, Certainty: nouns.Accepted}
	}
	seconds, _ := strconv.Atoi(a.value("retry-after"))
	return &nouns.Result{Class: nouns.Again, Scope: nouns.ScopeRoute, Pause: true, Pressure: nouns.OverQuota, After: max(time.Duration(seconds)*time.Second, 10*time.Second)}
}

// A project's quota that is said with each answer is used by four workers, whatever their
// base, and not run into: from the first whole window on next to nothing is refused.
func TestAFleetKeepsToWhatIsAnnounced(t *testing.T) {
	const (
		quota   = 600
		window  = 20 * time.Second
		windows = 4 // and a part before and after them
	)
	start := time.Unix(1_800_000_000, 0) // as a stand's clock begins
	for _, tt := range []struct {
		ratio   float64 // of the base to the quota
		headers QuotaHeaders
		used    float64 // of the quota, at least
	}{
		{1, RateLimitHeaders, 0.99},
		{4, OlderQuotaHeaders, 0.8},
		{9, XRateLimitHeaders, 0.8},
	} {
		t.Run(fmt.Sprint(tt.ratio, " ", tt.headers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis, err := embedded.StartPipeRedis()
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				q := &queuing{redis: redis, base: tt.ratio * quota / window.Seconds(), window: window, started: time.Now(), epoch: start, ctx: ctx,
					accepted: make(map[time.Time]int), refused: make(map[time.Time]int),
					stand: newStand(t, func(o *Options) {
						o.Rules.ProjectQuota, o.Rules.QuotaRetryAfter, o.Rules.QuotaHeaders = Limit{quota, window}, true, tt.headers
					})}
				first := windowEnd(window, start, q.policy.offset)
				for i := range 4 {
					q.join(fmt.Sprint("w", i))
				}
				long := first.Sub(start) + windows*window + window/4
				time.Sleep(long)
				stop()
				q.running.Wait()
				redis.Close()
				synctest.Wait()
				all, allOver, good, over := 0, 0, 0, 0
				for ends, n := range q.accepted {
					all += n
					if n > quota {
						t.Errorf("the simulator has accepted %d of a quota of %d", n, quota)
					}
					if whole := ends.After(first) && !ends.After(first.Add(windows*window)); whole {
						good += n
					}
				}
				for ends, n := range q.refused {
					allOver += n
					if ends.After(first) {
						over += n
					}
				}
				used := float64(good) / (windows * quota)
				t.Logf("%d accepted and %d refused in all; once settled %d refused, and %.3f of the quota used", all, allOver, over, used)
				if used < tt.used {
					t.Errorf("%.4f of the quota is used, want %v", used, tt.used)
				}
				if 100*over >= good {
					t.Errorf("%d were refused of %d that were accepted, want under 1 %%", over, good)
				}
				if most := 1.02 * quota * (windows + 2); float64(all) > most {
					t.Errorf("%d accepted within %v, in parts of %d windows: want at most %v", all, long, windows+2, most)
				}
			})
		})
	}
}
