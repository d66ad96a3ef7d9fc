package limits

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// encoded is a state of version 2.
func encoded(events ...event) []byte {
	s := state{events: events}
	return s.encode(nil, 2)
}

// limiter writes states of version 2.
func limiter(t testing.TB, client redis.UniversalClient, rules ...Rule) *Limiter {
	t.Helper()
	l, err := New(client, rules, WriteVersion2())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// stored reads a state as the user record's MGET does.
func stored(t testing.TB, client redis.UniversalClient, owner string) []byte {
	t.Helper()
	state, err := client.Get(context.Background(), shards.LimiterKey(shards.UserShard(owner), owner)).Bytes()
	if err == redis.Nil {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func perUser(n int, window time.Duration) Rule {
	return Rule{Name: "all", Per: PerUser, Max: n, Window: window}
}

// step is one request and its expected answer.
type step struct {
	after time.Duration // since the start
	id    string
	kind  string
	rule  string // the rule that denies; empty = allowed
	why   string
}

func TestDecisions(t *testing.T) {
	daily := Rule{Name: "daily", Per: PerUserType, Max: 2, Window: 24 * time.Hour}
	promo := Rule{Name: "promo", Per: PerUser, Types: []string{"promo", "sale"}, Max: 1, Window: time.Hour}
	for _, c := range []struct {
		name  string
		rules []Rule
		steps []step
	}{
		{"a window slides", []Rule{perUser(2, time.Hour)}, []step{
			{0, "a", "x", "", "the first"},
			{30 * time.Minute, "b", "x", "", "the second"},
			{59 * time.Minute, "c", "x", "all", "two within the hour before"},
			{time.Hour, "c", "x", "", "a is an hour old: it no longer counts, and c's denial left no trace"},
			{89 * time.Minute, "d", "x", "all", "b and c"},
			{90 * time.Minute, "d", "x", "", "b no longer counts"},
		}},
		{"an id is counted once", []Rule{perUser(1, time.Hour)}, []step{
			{0, "a", "x", "", "the first"},
			{0, "b", "x", "all", "the limit"},
			{time.Minute, "a", "x", "", "allowed before, so allowed again"},
			{time.Hour, "b", "x", "", "asking for a again spent nothing"},
		}},
		{"types have their own count", []Rule{daily}, []step{
			{0, "a", "x", "", ""}, {0, "b", "x", "", ""},
			{0, "c", "x", "daily", "two of type x"},
			{0, "d", "y", "", "none of type y yet"},
		}},
		{"a rule is about some types", []Rule{promo}, []step{
			{0, "a", "promo", "", ""},
			{0, "b", "sale", "promo", "both types count together"},
			{0, "c", "order", "", "not its business"},
			{0, "c2", "order", "", "not its business, however many"},
		}},
		{"all rules must agree", []Rule{promo, perUser(2, time.Hour)}, []step{
			{0, "a", "promo", "", ""},
			{0, "b", "promo", "promo", "the first rule that denies is named"},
			{0, "c", "order", "", "the denied one did not count for the other rule"},
			{0, "d", "order", "all", ""},
			{0, "e", "promo", "promo", "both deny: the configured order decides the name"},
		}},
		{"a slow clock", []Rule{perUser(1, time.Hour)}, []step{
			{30 * time.Second, "a", "x", "", "by a worker whose clock is ahead"},
			{0, "b", "x", "all", "the event lies in the future, and counts"},
		}},
		{"what a fast clock is done with, a slow one still counts", []Rule{perUser(2, time.Hour)}, []step{
			{0, "a", "x", "", ""}, {0, "b", "x", "", ""},
			{time.Hour + 29*time.Second, "c", "x", "", "by the fast clock the window of both is over"},
			{time.Hour - 29*time.Second, "d", "x", "all", "by the slow clock it is not"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := shardstest.Start(t)
			l := limiter(t, client, c.rules...)
			// One by one with the states as read, and all in one call.
			for i, s := range c.steps {
				r := &Request{Owner: "u", ID: s.id, Type: s.kind, State: stored(t, client, "u"), At: start.Add(s.after)}
				if err := l.Decide(t.Context(), []*Request{r}); err != nil {
					t.Fatal(err)
				}
				if r.Rule != s.rule || r.Allowed != (s.rule == "") {
					t.Errorf("step %d: allowed %v, rule %q, want %q: %s", i, r.Allowed, r.Rule, s.rule, s.why)
				}
			}
			var reqs []*Request
			for _, s := range c.steps {
				reqs = append(reqs, &Request{Owner: "v", ID: s.id, Type: s.kind, At: start.Add(s.after)})
			}
			if err := l.Decide(t.Context(), reqs); err != nil {
				t.Fatal(err)
			}
			for i, s := range c.steps {
				if reqs[i].Rule != s.rule {
					t.Errorf("in one call, step %d: rule %q, want %q: %s", i, reqs[i].Rule, s.rule, s.why)
				}
			}
		})
	}
}

func TestStaleStateIsDecidedAnew(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour))
	decide := func(id string, state []byte) bool {
		r := &Request{Owner: "u", ID: id, Type: "x", State: state, At: start}
		if err := l.Decide(t.Context(), []*Request{r}); err != nil {
			t.Fatal(err)
		}
		return r.Allowed
	}
	if !decide("a", nil) {
		t.Error("a is the first")
	}
	if decide("b", nil) {
		t.Error("b was decided from a state read before a was stored")
	}
	if !decide("a", nil) {
		t.Error("a is in the stored state, whatever was read")
	}
}

func TestStateOfUnknownVersionStalls(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour))
	key := shards.LimiterKey(shards.UserShard("u"), "u")
	for _, c := range []struct{ name, state, want string }{
		{"newer version", "\x03whatever it holds", "unknown version 3"},
		{"cut short", "\x01\x02\x03", "damaged"},
		{"a time that nobody writes", "\x01" + string(binary.LittleEndian.AppendUint64(nil, xxhash.Sum64String("12345678"))) + "12345678", "damaged"},
		{"changed", string(append(encoded(event{id: 1, kind: 2, at: 3})[:20], make([]byte, 21)...)), "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := client.Set(t.Context(), key, c.state, 0).Err(); err != nil {
				t.Fatal(err)
			}
			asRead := []*Request{{Owner: "u", ID: "a", State: []byte(c.state), At: start}}
			err := l.Decide(t.Context(), asRead)
			if broken, ok := errors.AsType[*StateError](err); !ok || broken.Key != key || !strings.Contains(err.Error(), c.want) {
				t.Errorf("as read: got %v, want %q", err, c.want)
			}
			// The same when it is found at the compare-and-set.
			err = l.Decide(t.Context(), []*Request{{Owner: "u", ID: "a", At: start}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("as found: got %v, want %q", err, c.want)
			}
			if got := client.Get(t.Context(), key).Val(); got != c.state {
				t.Errorf("the state was overwritten with %q", got)
			}
			// Somebody resets the user: the batch that waits goes on with what it has read.
			if n, err := Forget(t.Context(), client, "u"); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			if err := l.Decide(t.Context(), asRead); err != nil || !asRead[0].Allowed {
				t.Errorf("after a reset: %v", err)
			}
			if stored(t, client, "u") == nil {
				t.Error("nothing was spent after a reset")
			}
		})
	}
}

// counted counts the round trips of a client.
type counted struct{ trips int }

func (c *counted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.trips++
		return next(ctx, cmd)
	}
}

func (c *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.trips++
		return next(ctx, cmds)
	}
}

// After many users were reset, the batch that has waited with what it read at first reads
// them again in one round trip, and leaves those alone whose states are of use.
func TestManyStatesAreReadAgainAtOnce(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour))
	decide := func(id string, state string) (trips int) {
		t.Helper()
		var reqs []*Request
		for i := range 200 {
			r := &Request{Owner: fmt.Sprint("u", i), ID: id, At: start}
			if i%2 == 0 {
				r.State = []byte(state)
			} else {
				r.State = stored(t, client, r.Owner)
			}
			reqs = append(reqs, r)
		}
		hook := new(counted)
		client.AddHook(hook)
		err := l.Decide(t.Context(), reqs)
		trips, hook.trips = hook.trips, 0
		for i, r := range reqs {
			if err != nil || r.Allowed != (id == "first") {
				t.Fatalf("%s: user %d allowed: %t, %v", id, i, r.Allowed, err)
			}
		}
		return trips
	}
	usual := decide("first", "")
	if trips := decide("second", "damaged"); trips != 1 { // nothing is allowed, and nothing stored
		t.Errorf("%d round trips for 100 states that are of no use, and %d to store 200", trips, usual)
	}
}

func TestScriptsAreReloaded(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour))
	for round := range 3 {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		reqs := make([]*Request, 1000)
		for i := range reqs {
			reqs[i] = &Request{Owner: fmt.Sprintf("u%d-%d", round, i), ID: "a", Type: "x", At: start}
		}
		if err := l.Decide(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		for _, r := range reqs {
			if stored(t, client, r.Owner) == nil {
				t.Fatalf("round %d: the state of %s is missing", round, r.Owner)
			}
		}
	}
}

func TestStatesExpireWithTheLongestWindow(t *testing.T) {
	client := shardstest.Start(t)
	l := limiter(t, client, perUser(1, time.Hour), Rule{Name: "week", Per: PerUser, Max: 9, Window: 7 * 24 * time.Hour})
	began := time.Now()
	if err := l.Decide(t.Context(), []*Request{{Owner: "u", ID: "a", At: start}}); err != nil {
		t.Fatal(err)
	}
	ttl := client.PTTL(t.Context(), shards.LimiterKey(shards.UserShard("u"), "u")).Val()
	if want := 7*24*time.Hour + skew; ttl < want-time.Since(began)-time.Second || ttl > want {
		t.Errorf("expires in %v, want a week and what clocks may differ by, %v", ttl, want)
	}
}

func TestWorkersAtOnceNeverExceedTheLimit(t *testing.T) {
	client := shardstest.Start(t)
	const limit, workers, each = 20, 4, 30
	var wg sync.WaitGroup
	var mu sync.Mutex
	allowed := map[string]bool{}
	for w := range workers {
		l := limiter(t, client, perUser(limit, time.Hour))
		wg.Go(func() {
			for i := range each {
				r := &Request{Owner: "u", ID: fmt.Sprintf("%d-%d", w, i), Type: "x", At: start}
				for {
					// Contention is an error, after which the stage repeats.
					if err := l.Decide(t.Context(), []*Request{r}); err == nil {
						break
					}
				}
				if r.Allowed {
					mu.Lock()
					allowed[r.ID] = true
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(allowed) != limit {
		t.Errorf("%d allowed, want %d", len(allowed), limit)
	}
}

func TestRedisAwayIsAnError(t *testing.T) {
	r, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	client := shardstest.Connect(t, r.Addr())
	l := limiter(t, client, perUser(1, time.Hour))
	r.Close()
	if err := l.Decide(t.Context(), []*Request{{Owner: "u", ID: "a", At: start}}); err == nil {
		t.Error("decided without Redis")
	}
}

func TestRulesAreChecked(t *testing.T) {
	good := perUser(1, time.Hour)
	for _, c := range []struct {
		why    string
		change func(*Rule)
	}{
		{"no name", func(r *Rule) { r.Name = "" }},
		{"state_full", func(r *Rule) { r.Name = StateFull }},
		{"per", func(r *Rule) { r.Per = "planet" }},
		{"max", func(r *Rule) { r.Max = 0 }},
		{"max", func(r *Rule) { r.Max = maxPerRule + 1 }},
		{"window", func(r *Rule) { r.Window = time.Millisecond }},
		{"window", func(r *Rule) { r.Window = 60 * 24 * time.Hour }},
		{"whole ms", func(r *Rule) { r.Window = time.Second + time.Microsecond }},
		{"algorithm", func(r *Rule) { r.Algorithm = "guess" }},
		{"needs a calendar", func(r *Rule) { r.Algorithm = FixedWindow }},
		{"calendar", func(r *Rule) { r.Calendar, r.Window, r.Algorithm = "year", 0, FixedWindow }},
		{"both", func(r *Rule) { r.Calendar, r.Algorithm = Day, FixedWindow }},
		{"slide", func(r *Rule) { r.Calendar, r.Window = Day, 0 }},
		{"slide", func(r *Rule) { r.Calendar, r.Window, r.Algorithm = Day, 0, SlidingCounter }},
		{"names none", func(r *Rule) { r.Per = PerSegment }},
		{"only drop", func(r *Rule) { r.Per, r.Over = PerDeviceType, Defer }},
		{"over", func(r *Rule) { r.Over = "shout" }},
		{"distinct", func(r *Rule) { r.Distinct = []string{"promo"} }},
		{"priority", func(r *Rule) { r.Priorities = []uint8{6} }},
		{"priority", func(r *Rule) { r.Priorities = []uint8{0} }},
		{"max of segment new", func(r *Rule) { r.SegmentMax = map[string]int{"new": maxPerRule + 1} }},
	} {
		bad := good
		c.change(&bad)
		if _, err := New(nil, []Rule{bad}, WriteVersion2()); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: got %v, want an error about %s", bad, err, c.why)
		}
	}
	if _, err := New(nil, []Rule{good, good}); err == nil {
		t.Error("two rules of one name")
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("no rules")
	}
}

// Junk types fill a state. What has no room is refused, and the count of a cap
// stands.
func TestAFullStateRefuses(t *testing.T) {
	client := shardstest.Start(t)
	each := Rule{Name: "each", Per: PerUserType, Max: 1, Window: time.Hour}
	l := limiter(t, client, each)
	reqs := make([]*Request, maxEvents+100)
	for i := range reqs {
		reqs[i] = &Request{Owner: "u", ID: strconv.Itoa(i), Type: strconv.Itoa(i), At: start}
	}
	if err := l.Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if got, most := len(stored(t, client, "u")), headerSize+maxEvents*eventSize; got != most {
		t.Errorf("the state has %d bytes, want %d", got, most)
	}
	for i, r := range reqs {
		if r.Allowed != (i < maxEvents) || !r.Allowed && r.Rule != StateFull {
			t.Fatalf("request %d: allowed %v, rule %q", i, r.Allowed, r.Rule)
		}
	}
	again := []*Request{{Owner: "u", ID: "new", Type: "0", At: start}, {Owner: "u", ID: "0", Type: "0", At: start}}
	if err := l.Decide(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if again[0].Allowed || again[0].Rule != "each" || !again[1].Allowed {
		t.Errorf("afterwards %+v and %+v", again[0].Decision, again[1].Decision)
	}

	each.Distinct = []string{"0"}
	l = limiter(t, client, each)
	for i, r := range reqs {
		r.Owner = "v"
		if err := l.Decide(t.Context(), reqs[i:i+1]); err != nil || r.Allowed != (i < 2) {
			t.Fatalf("unlisted types share a count: type %d allowed %v, %v", i, r.Allowed, err)
		}
		if r.State = nil; i == 9 {
			break
		}
	}
}
