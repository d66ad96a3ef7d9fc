package senders

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

func TestSendersDecide(t *testing.T) {
	leaky := Rule{Name: "even", Algorithm: LeakyBucket, Max: 60, Window: time.Hour, Wait: 90 * time.Second}
	other := hourly(0)
	other.Name, other.Lanes = "promos", []string{"promo"}
	for _, c := range []struct {
		why   string
		rules []Rule
		reqs  func() []*limits.Request
		want  string
	}{
		{"a burst, then a token a minute, then no more debt", []Rule{hourly(2 * time.Minute)}, func() []*limits.Request { return from("orders", 6, start) },
			"ok, ok, wait 1m0s paid, wait 2m0s paid, wait 3m0s, wait 3m0s"},
		{"never two at once", []Rule{leaky}, func() []*limits.Request { return from("orders", 3, start) }, "ok, wait 1m0s paid, wait 2m0s"},
		{"senders have their own", []Rule{hourly(0)}, func() []*limits.Request { return append(from("a", 3, start), from("b", 2, start)...) }, "ok, ok, wait 1m0s, ok, ok"},
		{"who has paid, and who has no sender, passes", []Rule{leaky}, func() []*limits.Request {
			reqs := from("orders", 4, start)
			reqs[0].Paid, reqs[1].Sender, reqs[2].Paid = true, "", true
			return reqs
		}, "ok, ok, ok, ok"},
		{"the more urgent before the others", []Rule{hourly(5 * time.Minute)}, func() []*limits.Request {
			reqs := from("orders", 4, start)
			reqs[2].Priority, reqs[3].Priority = 5, 4
			return reqs
		}, "wait 1m0s paid, wait 2m0s paid, ok, ok"},
		{"nobody waits for a token that comes too late, or takes it", []Rule{hourly(5 * time.Minute)}, func() []*limits.Request {
			reqs := from("orders", 7, start)
			reqs[2].Expires = start.Add(59 * time.Second)
			reqs[3].Expires, reqs[3].Jitter = start.Add(time.Minute), time.Second
			reqs[4].Expires, reqs[4].Jitter = start.Add(2*time.Minute-1), time.Second
			reqs[6].Expires, reqs[6].Jitter = start.Add(3*time.Minute+20*time.Second), time.Minute
			return reqs
		}, "ok, ok, no hourly, wait 1m0s paid, no hourly, wait 2m0s paid, wait 3m10s paid"},
		{"both rules, or neither is spent", []Rule{hourly(5 * time.Minute), other}, func() []*limits.Request {
			reqs := from("orders", 5, start)
			for _, r := range reqs {
				r.Lane = "promo"
			}
			reqs[3].Lane, reqs[4].Lane = "other", "other"
			return reqs
		}, "ok, ok, wait 1m0s, wait 1m0s paid, wait 2m0s paid"},
		{"a rule for others", []Rule{{Name: "x", Algorithm: LeakyBucket, Max: 1, Window: time.Hour, Senders: []string{"ads"}, Types: []string{"t"}, Apps: []string{"shop"}}},
			func() []*limits.Request {
				reqs := append(from("orders", 1, start), from("ads", 4, start)...)
				for i, r := range reqs {
					r.Type, r.App = []string{"t", "t", "other", "t", "t"}[i], []string{"shop", "shop", "shop", "bank", "shop"}[i]
				}
				return reqs
			}, "ok, ok, ok, ok, wait 1h0m0s"},
	} {
		t.Run(c.why, func(t *testing.T) {
			reqs := c.reqs()
			if err := under(t, shardstest.Start(t), c.rules...).Decide(t.Context(), reqs); err != nil {
				t.Fatal(err)
			}
			if got := inWords(reqs); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

func TestADecisionOfASenderExplainsItself(t *testing.T) {
	reqs := from("orders", 4, start)
	if err := under(t, shardstest.Start(t), hourly(time.Hour)).Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	want := limits.Decision{Deferred: true, Dimension: limits.DimensionSender, Rule: "hourly", Current: 3, Limit: 2, RetryAfter: 2 * time.Minute, ResetAt: start.Add(3 * time.Minute)}
	if reqs[3].Decision != want {
		t.Errorf("%+v, want %+v", reqs[3].Decision, want)
	}
	// Of several rules the one that it waits for longest.
	slow := hourly(time.Hour)
	slow.Name, slow.Algorithm, slow.Burst = "slow", LeakyBucket, 0
	reqs = from("ads", 3, start)
	if err := under(t, shardstest.Start(t), hourly(time.Hour), slow).Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if d := reqs[2].Decision; d.Rule != "slow" || d.Limit != 1 || d.RetryAfter != 2*time.Minute {
		t.Errorf("%+v", d)
	}
	// Of two that it waits for as long the first, in the configured order.
	second := hourly(time.Hour)
	second.Name = "second"
	reqs = from("news", 3, start)
	if err := under(t, shardstest.Start(t), hourly(time.Hour), second).Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if d := reqs[2].Decision; d.Rule != "hourly" {
		t.Errorf("%+v, want the first rule's", d)
	}
}

// Workers at once take each token once.
func TestSendersAtOnce(t *testing.T) {
	client := shardstest.Start(t)
	const workers, each = 16, 20
	var mu sync.Mutex
	var waits []time.Duration
	var wg sync.WaitGroup
	for range workers {
		s := under(t, client, hourly(24*time.Hour))
		wg.Go(func() {
			reqs := from("orders", each, start)
			if err := s.Decide(t.Context(), reqs); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, r := range reqs {
				waits = append(waits, r.RetryAfter)
			}
		})
	}
	wg.Wait()
	slices.Sort(waits)
	for i, w := range waits {
		if want := max(0, time.Duration(i-1)*time.Minute); w != want {
			t.Fatalf("token %d comes after %v, want %v", i, w, want)
		}
	}
}

// Who asks with another expiry each is cut into calls that are short.
func TestSendersAskInShortCalls(t *testing.T) {
	client := shardstest.Start(t)
	hook := &scripts{}
	client.AddHook(hook)
	reqs := from("orders", 2500, start)
	for i, r := range reqs {
		r.Expires = start.Add(time.Duration(i+1) * time.Second)
	}
	if err := under(t, client, hourly(24*time.Hour)).Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if hook.calls != 3 {
		t.Errorf("%d calls", hook.calls)
	}
	hook.calls = 0
	if err := under(t, client, hourly(24*time.Hour)).Decide(t.Context(), append(from("a", 5000, start), from("b", 5000, start)...)); err != nil || hook.calls != 2 {
		t.Errorf("%d calls for two senders, %v", hook.calls, err)
	}
	hook.calls = 0
	for _, r := range reqs {
		r.Paid = r.Sender == "orders"
	}
	forOthers := hourly(0)
	forOthers.Senders = []string{"others"}
	if err := under(t, client, forOthers).Decide(t.Context(), append(reqs, from("c", 3, start)...)); err != nil || hook.calls != 0 {
		t.Errorf("%d calls where nothing is to ask, %v", hook.calls, err)
	}
}

// A bucket that a broken clock filled with debt heals, and a full one is
// forgotten.
func TestBucketsHealAndExpire(t *testing.T) {
	client := shardstest.Start(t)
	s := under(t, client, hourly(24*time.Hour))
	const key = "b:{5069}:a6cf4163:orders" // stored under it: it must never change
	if err := s.Decide(t.Context(), from("orders", 1, start.Add(1000*time.Hour))); err != nil {
		t.Fatal(err)
	}
	reqs := from("orders", 1, start)
	if err := s.Decide(t.Context(), reqs); err != nil || reqs[0].ResetAt.Sub(start) > 49*time.Hour {
		t.Errorf("%+v, %v", reqs[0].Decision, err)
	}
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Decide(t.Context(), from("orders", 5, start)); err != nil {
		t.Fatal(err)
	}
	if ttl := client.PTTL(t.Context(), key).Val(); ttl > 5*time.Minute || ttl < 4*time.Minute {
		t.Errorf("a bucket that is full in 5 minutes expires in %v", ttl)
	}
}

func TestRulesOfSendersAreChecked(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*Rule)
	}{
		{"no name", func(r *Rule) { r.Name = "" }},
		{"algorithm", func(r *Rule) { r.Algorithm = "sliding_log" }},
		{"max", func(r *Rule) { r.Max, r.Burst = 0, 0 }},
		{"max", func(r *Rule) { r.Max = maxPerWindow + 1 }},
		{"window", func(r *Rule) { r.Window = time.Millisecond }},
		{"window", func(r *Rule) { r.Window = 25 * time.Hour }},
		{"burst", func(r *Rule) { r.Burst = 61 }},
		{"burst", func(r *Rule) { r.Burst = -1 }},
		{"burst", func(r *Rule) { r.Algorithm = LeakyBucket }},
		{"wait", func(r *Rule) { r.Wait = -1 }},
		{"wait", func(r *Rule) { r.Wait = 25 * time.Hour }},
	} {
		r := hourly(0)
		c.change(&r)
		if _, err := New(nil, []Rule{r}, nil); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v, want an error about %s", r, err, c.why)
		}
	}
	for why, rules := range map[string][]Rule{"one name twice": {hourly(0), hourly(0)}, "none": nil, "too many": make([]Rule, maxRules+1)} {
		if _, err := New(nil, rules, nil); err == nil {
			t.Error(why)
		}
	}
	most := make([]Rule, maxRules)
	for i := range most {
		most[i] = hourly(maxWindow)
		most[i].Name = fmt.Sprint(i)
	}
	for why, rules := range map[string][]Rule{
		"the most rules": most,
		"a day":          {{Name: "x", Algorithm: LeakyBucket, Max: 1, Window: maxWindow}},
		"the shortest":   {{Name: "x", Algorithm: LeakyBucket, Max: 1, Burst: 1, Window: minWindow}},
		"the most":       {{Name: "x", Algorithm: TokenBucket, Max: maxPerWindow, Burst: maxPerWindow, Window: maxWindow}},
	} {
		if _, err := New(nil, rules, nil); err != nil {
			t.Errorf("%s: %v", why, err)
		}
	}
	if b, err := compile([]Rule{{Name: "x", Algorithm: TokenBucket, Max: 7, Window: time.Second}}); err != nil || b[0].every != 142858 || b[0].full != 7*142858 {
		t.Errorf("%+v, %v: a token every 142,857.1 us, rounded up", b, err)
	}
}

// By the real buckets: a token is taken for what the recipient may get and for nothing
// else.
func TestSendersPayForWhatGoes(t *testing.T) {
	client := shardstest.Start(t)
	recipients, err := limits.New(client, []limits.Rule{{Name: "all", Per: limits.PerUser, Max: 1, Window: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	l := under(t, client, hourly(time.Minute))
	reqs := from("shop", 6, start)
	for i, r := range reqs {
		r.Owner = fmt.Sprint("u", i/2)
	}
	want := "ok, no all, ok, no all, wait 1m0s paid, wait 2m0s"
	for range 2 { // repeated, as after an error: who has a token takes none, and who was put off asks later
		if err := recipients.DecideWith(t.Context(), reqs, l); err != nil || inWords(reqs) != want {
			t.Fatalf("answers are %s, %v, want %s", inWords(reqs), err, want)
		}
		key := shards.BucketKey(shards.UserShard("shop"), nameHash("hourly"), "shop")
		if full := client.Get(t.Context(), key).Val(); full != fmt.Sprint(start.Add(3*time.Minute).UnixMicro()) {
			t.Fatalf("the bucket is full at %s: three tokens are taken", full)
		}
		reqs, want = reqs[:4], "ok, no all, ok, no all"
	}
}

// A bucket that is full again within less than a millisecond is kept for one: Redis
// refuses a shorter time.
func TestABucketThatIsSoonFull(t *testing.T) {
	s := under(t, shardstest.Start(t), Rule{Name: "fast", Algorithm: TokenBucket, Max: 1_000_000, Window: time.Minute, Burst: 2})
	for range 2 {
		reqs := from("orders", 1, start)
		if err := s.Decide(t.Context(), reqs); err != nil || inWords(reqs) != "ok" {
			t.Errorf("%s, %v", inWords(reqs), err)
		}
	}
}
