package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/limits/model"
	"github.com/pushfleet/pushfleet/shards"
)

func senders(t testing.TB, client redis.UniversalClient, rules ...SenderRule) *Senders {
	t.Helper()
	s, err := NewSenders(client, rules)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hourly(wait time.Duration) SenderRule {
	return SenderRule{Name: "hourly", Algorithm: TokenBucket, Max: 60, Window: time.Hour, Burst: 2, Wait: wait}
}

// from makes n requests of one sender.
func from(sender string, n int, at time.Time) []*Request {
	reqs := make([]*Request, n)
	for i := range reqs {
		reqs[i] = &Request{Sender: sender, ID: fmt.Sprint(i), At: at, Priority: 3}
	}
	return reqs
}

func inWords(reqs []*Request) string {
	var out []string
	for _, r := range reqs {
		word := words(r)
		switch {
		case r.Allowed && r.Sender != "" && !r.Paid:
			word += " and has no token"
		case r.Paid && !r.Allowed:
			word += " paid"
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

func TestSendersDecide(t *testing.T) {
	leaky := SenderRule{Name: "even", Algorithm: LeakyBucket, Max: 60, Window: time.Hour, Wait: 90 * time.Second}
	other := hourly(0)
	other.Name, other.Lanes = "promos", []string{"promo"}
	for _, c := range []struct {
		why   string
		rules []SenderRule
		reqs  func() []*Request
		want  string
	}{
		{"a burst, then a token a minute, then no more debt", []SenderRule{hourly(2 * time.Minute)}, func() []*Request { return from("orders", 6, start) },
			"ok, ok, wait 1m0s paid, wait 2m0s paid, wait 3m0s, wait 3m0s"},
		{"never two at once", []SenderRule{leaky}, func() []*Request { return from("orders", 3, start) }, "ok, wait 1m0s paid, wait 2m0s"},
		{"senders have their own", []SenderRule{hourly(0)}, func() []*Request { return append(from("a", 3, start), from("b", 2, start)...) }, "ok, ok, wait 1m0s, ok, ok"},
		{"who has paid, and who has no sender, passes", []SenderRule{leaky}, func() []*Request {
			reqs := from("orders", 4, start)
			reqs[0].Paid, reqs[1].Sender, reqs[2].Paid = true, "", true
			return reqs
		}, "ok, ok, ok, ok"},
		{"the more urgent before the others", []SenderRule{hourly(5 * time.Minute)}, func() []*Request {
			reqs := from("orders", 4, start)
			reqs[2].Priority, reqs[3].Priority = 5, 4
			return reqs
		}, "wait 1m0s paid, wait 2m0s paid, ok, ok"},
		{"nobody waits for a token that comes too late, or takes it", []SenderRule{hourly(5 * time.Minute)}, func() []*Request {
			reqs := from("orders", 6, start)
			reqs[2].Expires = start.Add(59 * time.Second)
			reqs[3].Expires = start.Add(time.Minute)
			reqs[4].Expires, reqs[4].Jitter = start.Add(2*time.Minute), time.Second
			return reqs
		}, "ok, ok, no hourly, wait 1m0s paid, no hourly, wait 2m0s paid"},
		{"both rules, or neither is spent", []SenderRule{hourly(5 * time.Minute), other}, func() []*Request {
			reqs := from("orders", 5, start)
			for _, r := range reqs {
				r.Lane = "promo"
			}
			reqs[3].Lane, reqs[4].Lane = "other", "other"
			return reqs
		}, "ok, ok, wait 1m0s, wait 1m0s paid, wait 2m0s paid"},
		{"a rule for others", []SenderRule{{Name: "x", Algorithm: LeakyBucket, Max: 1, Window: time.Hour, Senders: []string{"ads"}, Types: []string{"t"}, Apps: []string{"shop"}}},
			func() []*Request {
				reqs := append(from("orders", 1, start), from("ads", 4, start)...)
				for i, r := range reqs {
					r.Type, r.App = []string{"t", "t", "other", "t", "t"}[i], []string{"shop", "shop", "shop", "bank", "shop"}[i]
				}
				return reqs
			}, "ok, ok, ok, ok, wait 1h0m0s"},
	} {
		t.Run(c.why, func(t *testing.T) {
			reqs := c.reqs()
			if err := senders(t, open(t), c.rules...).Decide(t.Context(), reqs); err != nil {
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
	if err := senders(t, open(t), hourly(time.Hour)).Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	want := Decision{Deferred: true, Dimension: DimensionSender, Rule: "hourly", Current: 3, Limit: 2, RetryAfter: 2 * time.Minute, ResetAt: start.Add(3 * time.Minute)}
	if reqs[3].Decision != want {
		t.Errorf("%+v, want %+v", reqs[3].Decision, want)
	}
	// Of several rules the one that it waits for longest.
	slow := hourly(time.Hour)
	slow.Name, slow.Algorithm, slow.Burst = "slow", LeakyBucket, 0
	reqs = from("ads", 3, start)
	if err := senders(t, open(t), hourly(time.Hour), slow).Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if d := reqs[2].Decision; d.Rule != "slow" || d.Limit != 1 || d.RetryAfter != 2*time.Minute {
		t.Errorf("%+v", d)
	}
}

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
func TestSendersAgreeWithTheModels(t *testing.T) {
	client := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			rt.Fatal(err)
		}
		var rules []SenderRule
		models := map[string][]bucketModel{}
		for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
			r := SenderRule{Name: fmt.Sprint("rule", i), Algorithm: rapid.SampledFrom([]Algorithm{TokenBucket, LeakyBucket}).Draw(rt, "algorithm"),
				Max: rapid.IntRange(1, 7).Draw(rt, "max"), Window: time.Duration(rapid.IntRange(1, 60).Draw(rt, "window")) * time.Second,
				Wait: time.Duration(rapid.IntRange(0, 90).Draw(rt, "wait")) * time.Second}
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
		s := senders(t, client, rules...)
		now := start
		for range rapid.IntRange(1, 8).Draw(rt, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40_000).Draw(rt, "ms")) * time.Millisecond)
			at := now.Add(-time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "slow")) * time.Millisecond)
			reqs := from("", rapid.IntRange(1, 12).Draw(rt, "batch"), at)
			for _, r := range reqs {
				r.Sender = rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "sender")
				r.Priority = rapid.Uint8Range(1, 3).Draw(rt, "priority")
				if rapid.Bool().Draw(rt, "expires") {
					r.Expires = at.Add(time.Duration(rapid.IntRange(-5, 100).Draw(rt, "expiry")) * time.Second)
				}
			}
			if err := s.Decide(t.Context(), reqs); err != nil {
				rt.Fatal(err)
			}
			slices.SortStableFunc(reqs, func(a, b *Request) int { return -cmp.Compare(a.Priority, b.Priority) })
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
				want := Decision{Allowed: all && longest == 0, Deferred: longest > 0 && (all || !late), RetryAfter: longest}
				if r.Allowed != want.Allowed || r.Deferred != want.Deferred || r.RetryAfter != want.RetryAfter || r.Paid != all {
					rt.Fatalf("%s at %v, expires %v: %+v, paid %v; the model says %v, %v", r.Sender, at.Sub(start), r.Expires.Sub(start), r.Decision, r.Paid, longest, all)
				}
			}
		}
	})
}

// Workers at once take each token once.
func TestSendersAtOnce(t *testing.T) {
	client := open(t)
	const workers, each = 16, 20
	var mu sync.Mutex
	var waits []time.Duration
	var wg sync.WaitGroup
	for range workers {
		s := senders(t, client, hourly(24*time.Hour))
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
	client := open(t)
	hook := &counted{}
	client.AddHook(hook)
	reqs := from("orders", 2500, start)
	for i, r := range reqs {
		r.Expires = start.Add(time.Duration(i+1) * time.Second)
	}
	if err := senders(t, client, hourly(24*time.Hour)).Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if hook.calls != 3 {
		t.Errorf("%d calls", hook.calls)
	}
	hook.calls = 0
	if err := senders(t, client, hourly(24*time.Hour)).Decide(t.Context(), append(from("a", 5000, start), from("b", 5000, start)...)); err != nil || hook.calls != 2 {
		t.Errorf("%d calls for two senders, %v", hook.calls, err)
	}
	hook.calls = 0
	for _, r := range reqs {
		r.Paid = r.Sender == "orders"
	}
	forOthers := hourly(0)
	forOthers.Senders = []string{"others"}
	if err := senders(t, client, forOthers).Decide(t.Context(), append(reqs, from("c", 3, start)...)); err != nil || hook.calls != 0 {
		t.Errorf("%d calls where nothing is to ask, %v", hook.calls, err)
	}
}

// counted counts the scripts of pipelines.
type counted struct {
	answers
	calls int
}

func (c *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Args()[0] == "EVALSHA" {
				c.calls++
			}
		}
		return next(ctx, cmds)
	}
}

// A bucket that a broken clock filled with debt heals, and a full one is
// forgotten.
func TestBucketsHealAndExpire(t *testing.T) {
	client := open(t)
	s := senders(t, client, hourly(24*time.Hour))
	key := shards.BucketKey(shards.UserShard("orders"), typeHash("hourly"), "orders")
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

func TestUnreadableAnswersAboutSenders(t *testing.T) {
	for _, row := range []struct {
		answer func(*redis.Cmd) error
		want   string
	}{
		{says(int64(1), int64(0)), ""},
		{says(int64(1)), "answer with 1 numbers"},
		{says(int64(2), int64(0)), "2 tokens for 1"},
		{says(int64(-1), int64(0)), "-1 tokens for 1"},
		{says("x", int64(0)), "taking tokens of senders"},
		{fails(replied("OOM")), "OOM"},
	} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		client.AddHook(&answers{[]func(*redis.Cmd) error{row.answer}})
		err := senders(t, client, hourly(0)).Decide(t.Context(), from("a", 1, start))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("got %v, want %q", err, row.want)
		}
		_ = client.Close()
	}
}

// breaking answers the calls about some senders in their place.
type breaking struct {
	answers
	senders []string
	err     error
}

func (b *breaking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var rest []redis.Cmder
		for _, cmd := range cmds {
			if slices.ContainsFunc(b.senders, func(name string) bool { return strings.HasSuffix(fmt.Sprint(cmd.Args()[3]), ":"+name) }) {
				cmd.SetErr(b.err)
			} else {
				rest = append(rest, cmd)
			}
		}
		switch {
		case len(rest) == 0:
			return b.err
		case len(rest) < len(cmds):
			return cmp.Or(next(ctx, rest), b.err)
		}
		return next(ctx, rest)
	}
}

// One bucket fails, or one server of a cluster. What the others gave is kept: a stage
// that is repeated all the while takes no second token of theirs.
func TestAFailureKeepsTheTokensOfOtherSenders(t *testing.T) {
	for _, err := range []error{replied("OOM"), errors.New("connection refused")} {
		client := open(t)
		if err := client.ScriptLoad(t.Context(), bucketSource).Err(); err != nil {
			t.Fatal(err)
		}
		client.AddHook(&breaking{senders: []string{"first", "last"}, err: err})
		s := senders(t, client, hourly(time.Hour))
		reqs := slices.Concat(from("first", 1, start), from("orders", 3, start), from("last", 1, start))
		if got := s.Decide(t.Context(), reqs); !errors.Is(got, err) {
			t.Fatalf("%v, want %v", got, err)
		}
		if got, want := inWords(reqs), "ok and has no token, ok, ok, wait 1m0s paid, ok and has no token"; got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
		for range 3 {
			if got := s.Decide(t.Context(), reqs); !errors.Is(got, err) {
				t.Fatalf("%v, want %v", got, err)
			}
		}
		next := from("orders", 1, start)
		if err := s.Decide(t.Context(), next); err != nil || inWords(next) != "wait 2m0s paid" {
			t.Errorf("the next one: %s, %v, want the fourth token", inWords(next), err)
		}
	}
}

// A key that is no time, as somebody else may have written it, is replaced: it stalls
// no lane.
func TestABucketThatIsNone(t *testing.T) {
	client := open(t)
	s := senders(t, client, hourly(time.Hour))
	key := shards.BucketKey(shards.UserShard("orders"), typeHash("hourly"), "orders")
	for why, write := range map[string]func() error{
		"hash":  func() error { return client.HSet(t.Context(), key, "no", "bucket").Err() },
		"text":  func() error { return client.Set(t.Context(), key, "soon", 0).Err() },
		"empty": func() error { return client.Set(t.Context(), key, "", 0).Err() },
		"nan":   func() error { return client.Set(t.Context(), key, "nan", 0).Err() },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"ok, ok, wait 1m0s paid", "wait 2m0s paid, wait 3m0s paid, wait 4m0s paid"} {
			reqs := from("orders", 3, start)
			if err := s.Decide(t.Context(), reqs); err != nil || inWords(reqs) != want {
				t.Errorf("%s: %s, %v, want %s", why, inWords(reqs), err, want)
			}
		}
		if err := client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRulesOfSendersAreChecked(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*SenderRule)
	}{
		{"no name", func(r *SenderRule) { r.Name = "" }},
		{"algorithm", func(r *SenderRule) { r.Algorithm = SlidingLog }},
		{"max", func(r *SenderRule) { r.Max, r.Burst = 0, 0 }},
		{"max", func(r *SenderRule) { r.Max = maxPerSender + 1 }},
		{"window", func(r *SenderRule) { r.Window = time.Millisecond }},
		{"window", func(r *SenderRule) { r.Window = 25 * time.Hour }},
		{"burst", func(r *SenderRule) { r.Burst = 61 }},
		{"burst", func(r *SenderRule) { r.Burst = -1 }},
		{"burst", func(r *SenderRule) { r.Algorithm = LeakyBucket }},
		{"wait", func(r *SenderRule) { r.Wait = -1 }},
		{"wait", func(r *SenderRule) { r.Wait = 25 * time.Hour }},
	} {
		r := hourly(0)
		c.change(&r)
		if _, err := NewSenders(nil, []SenderRule{r}); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v, want an error about %s", r, err, c.why)
		}
	}
	for why, rules := range map[string][]SenderRule{"one name twice": {hourly(0), hourly(0)}, "none": nil, "too many": make([]SenderRule, maxSenderRules+1)} {
		if _, err := NewSenders(nil, rules); err == nil {
			t.Error(why)
		}
	}
	if b, err := compileSenders([]SenderRule{{Name: "x", Algorithm: TokenBucket, Max: 7, Window: time.Second}}); err != nil || b[0].every != 142858 || b[0].full != 7*142858 {
		t.Errorf("%+v, %v: a token every 142,857.1 us, rounded up", b, err)
	}
}
