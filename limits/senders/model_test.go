package senders

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/limits/model"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// bucketModel is a model of either algorithm.
type bucketModel struct {
	token *model.TokenBucket
	leaky *model.LeakyBucket
}

func (m bucketModel) take(now time.Time, bound time.Duration) (wait time.Duration, ok bool, after bucketModel) {
	if m.token != nil {
		b := *m.token
		b.Wait = min(b.Wait, bound)
		wait, ok = b.Take(now)
		b.Wait = m.token.Wait
		return wait, ok, bucketModel{token: &b}
	}
	b := *m.leaky
	b.Wait = min(b.Wait, bound)
	wait, ok = b.Take(now)
	b.Wait = m.leaky.Wait
	return wait, ok, bucketModel{leaky: &b}
}

// Whatever the rules, the batches, the clocks and the expiries, the buckets in
// Redis answer like the models.
//
// A bucket lives in Redis until it is full, by the clock of Redis, which a busy machine
// lets run ahead of the test's. So the test's seconds are long.
func TestSendersAgreeWithTheModels(t *testing.T) {
	const second = 15 * time.Second
	client := shardstest.Start(t)
	rapid.Check(t, func(rt *rapid.T) {
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			rt.Fatal(err)
		}
		var rules []Rule
		models := map[string][]bucketModel{}
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			r := Rule{Name: fmt.Sprint("rule", i), Algorithm: rapid.SampledFrom([]Algorithm{TokenBucket, LeakyBucket}).Draw(rt, "algorithm"),
				Max: rapid.IntRange(1, 7).Draw(rt, "max"), Window: time.Duration(rapid.IntRange(1, 60).Draw(rt, "window")) * second,
				Wait: time.Duration(rapid.IntRange(0, 90).Draw(rt, "wait")) * second}
			every := time.Duration((r.Window.Microseconds()+int64(r.Max)-1)/int64(r.Max)) * time.Microsecond
			for _, sender := range []string{"a", "b"} {
				m := bucketModel{leaky: &model.LeakyBucket{Every: every, Wait: r.Wait}}
				if r.Algorithm == TokenBucket {
					r.Burst = rapid.IntRange(1, r.Max).Draw(rt, "burst")
					m = bucketModel{token: &model.TokenBucket{Burst: r.Burst, Every: every, Wait: r.Wait}}
				}
				if sender == "b" && r.Algorithm == TokenBucket {
					m.token.Burst, models["a"][i].token.Burst = r.Burst, r.Burst
				}
				models[sender] = append(models[sender], m)
			}
			rules = append(rules, r)
		}
		s := under(t, client, rules...)
		now := start
		for range rapid.IntRange(1, 8).Draw(rt, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(rt, "ms")) * second / 1000)
			at := now.Add(-time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "slow")) * second / 1000)
			reqs := from("", rapid.IntRange(1, 12).Draw(rt, "batch"), at)
			for _, r := range reqs {
				r.Sender = rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "sender")
				r.Priority = rapid.Uint8Range(1, 3).Draw(rt, "priority")
				if rapid.Bool().Draw(rt, "expires") {
					r.Expires = at.Add(time.Duration(rapid.IntRange(-5, 100).Draw(rt, "expiry")) * second)
				}
			}
			first := *slices.MaxFunc(reqs, func(a, b *limits.Request) int { return cmp.Compare(a.Priority, b.Priority) })
			if err := s.Preview(t.Context(), []*limits.Request{&first}); err != nil || first.Paid {
				rt.Fatal(err, first.Paid)
			}
			if err := s.Decide(t.Context(), reqs); err != nil {
				rt.Fatal(err)
			}
			for _, r := range reqs { // the first that was asked of its sender
				if r.ID == first.ID && r.Sender == first.Sender && r.Priority == first.Priority && first.Decision != r.Decision {
					rt.Fatalf("a preview says %+v, and then it was %+v", first.Decision, r.Decision)
				}
			}
			slices.SortStableFunc(reqs, func(a, b *limits.Request) int { return -cmp.Compare(a.Priority, b.Priority) })
			for _, r := range reqs {
				bound := 24 * time.Hour
				if !r.Expires.IsZero() {
					bound = max(r.Expires.Sub(at), 0)
				}
				longest, all, after := time.Duration(0), true, []bucketModel{}
				for _, m := range models[r.Sender] {
					wait, ok, next := m.take(at, bound)
					longest, all, after = max(longest, wait), all && ok, append(after, next)
				}
				if all {
					models[r.Sender] = after
				}
				late := !r.Expires.IsZero() && at.Add(longest).After(r.Expires)
				want := limits.Decision{Allowed: all && longest == 0, Deferred: longest > 0 && (all || !late), RetryAfter: longest}
				if r.Allowed != want.Allowed || r.Deferred != want.Deferred || r.RetryAfter != want.RetryAfter || r.Paid != all {
					rt.Fatalf("%s at %v, expires %v: %+v, paid %v; the model says %v, %v", r.Sender, at.Sub(start), r.Expires.Sub(start), r.Decision, r.Paid, longest, all)
				}
			}
		}
	})
}
