package quota

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// member is a gateway as a script of the test's moves it: what it has of each window, whatever it
// has heard.
type member struct {
	name  string
	store *store
	seq   int64
	parts map[int64]*part // by window
	late  []shards.Call   // asks that have not arrived yet
}

// What all gateways have, used or held, is never more than the limit, in any window, whatever
// they ask for, give back, do not hear or hear twice, whoever dies, and when asks come late. What
// Redis counts is what they have, but for those that died and what was not heard.
func TestLeasesAreThoseOfOnePlace(t *testing.T) {
	redis, client := embeddedRedis(t)
	tries := 0
	rapid.Check(t, func(t *rapid.T) {
		tries++
		ctx := context.Background()
		clock := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
		redis.Mini.SetTime(clock)
		limit := rapid.Int64Range(1, 300).Draw(t, "limit")
		keys := []string{fmt.Sprint("q:{", tries, "}:0"), fmt.Sprint("q:{", tries, "}:1")}
		born := 0
		join := func() *member {
			born++
			name := fmt.Sprint("m", born)
			return &member{name: name, store: newStore(client, name), parts: map[int64]*part{}}
		}
		all := []*member{join(), join(), join()}
		lost := map[int64]int64{} // what the dead had, which is spent
		number := func() int64 { return clock.UnixMicro() / 1e6 }
		told := map[int64]map[string]int64{} // what Redis has been told, or has given, by window and gateway
		run := func(m *member, c *shards.Call) []int64 {
			calls := []shards.Call{*c}
			if err := all[0].store.run(ctx, calls); err != nil {
				t.Fatal(err)
			}
			values, err := calls[0].Cmd.Int64Slice()
			if err != nil {
				t.Fatal(err)
			}
			for k := range int64(2) {
				n, all, own := values[0]/1e6+k, values[2+3*k], values[3+3*k]
				if own < 0 {
					continue
				}
				if told[n] == nil {
					told[n] = map[string]int64{}
				}
				told[n][m.name] = own
				sum := int64(0)
				for _, count := range told[n] {
					sum += count
				}
				if all != sum {
					t.Fatalf("window %d: Redis counts %d, and has been told of %d", n, all, sum)
				}
			}
			return values
		}
		for range rapid.IntRange(1, 60).Draw(t, "moves") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "gateway")
			m := all[i]
			now := number()
			switch move := rapid.SampledFrom([]string{"ask", "ask", "ask", "unheard", "late", "arrives", "uses", "uses", "crash", "time"}).Draw(t, "move"); move {
			case "time":
				clock = clock.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "ms")) * time.Millisecond)
				redis.Mini.SetTime(clock)
			case "crash":
				for n, p := range m.parts {
					lost[n] += p.count()
				}
				all[i] = join()
			case "uses":
				if p := m.parts[now]; p != nil {
					n := rapid.Int64Range(0, p.held).Draw(t, "used")
					p.used, p.held = p.used+n, p.held-n
				}
			case "arrives":
				if len(m.late) > 0 {
					run(m, &m.late[0])
					m.late = m.late[1:]
				}
			default:
				m.seq++
				a := ask{seq: m.seq}
				n := &a.needs[0]
				*n = need{length: 1e6, limit: limit, now: rapid.Int64Range(0, 200).Draw(t, "now"), ahead: rapid.Int64Range(0, 200).Draw(t, "ahead"),
					next: rapid.SampledFrom([]int64{0, 0, 50, 1000}).Draw(t, "next")}
				for k := range n.parts {
					p := m.parts[now+int64(k)]
					if p == nil {
						p = &part{number: now + int64(k)}
						m.parts[now+int64(k)] = p
					}
					back := rapid.Int64Range(0, p.held).Draw(t, "back")
					p.held -= back
					n.parts[k] = p.known()
				}
				call := m.store.call(ctx, keys, &a, 3)
				if move == "late" {
					m.late = append(m.late, call)
					break
				}
				values := run(m, &call)
				if move == "unheard" {
					break
				}
				l, err := readLeases(values, &a, 1)
				if err != nil {
					t.Fatal(err)
				}
				for k, given := range l.parts[0] {
					if p := m.parts[now+int64(k)]; given.own >= 0 {
						p.held += given.given
						p.others, p.told = given.all-given.own, true
						if given.own != p.count() {
							t.Fatalf("it has %d, and Redis counts %d", p.count(), given.own)
						}
					}
				}
			}
			for n := number(); n <= number()+1; n++ {
				sum := lost[n]
				for _, m := range all {
					if p := m.parts[n]; p != nil {
						sum += p.count()
					}
				}
				if sum > limit {
					t.Fatalf("window %d: all have %d, and the limit is %d", n, sum, limit)
				}
			}
		}
	})
}

// Whatever stands in the keys, it makes way, and never gives more than the limit.
func TestWhatNoGatewayWroteMakesWay(t *testing.T) {
	redis, client := embeddedRedis(t)
	redis.Mini.SetTime(time.Unix(1_800_000_000, 0))
	for i, write := range []func(key string){
		func(string) {},
		func(key string) { _ = redis.Mini.Set(key, "text") },
		func(key string) { _, _ = redis.Mini.Lpush(key, "a") },
		func(key string) { redis.Mini.HSet(key, "n", "1800000000", "u", "-7", "b", "x", "mg", "1e999 7") },
		func(key string) { redis.Mini.HSet(key, "n", "1800000000", "u", "nan", "mg", "") },
		func(key string) { redis.Mini.HSet(key, "n", "1800000000", "u", "-1e300", "mg", "99 0") },
		func(key string) { redis.Mini.HSet(key, "n", "x", "u", "1e300") },
	} {
		keys := []string{fmt.Sprint("q:{x", i, "}:0"), fmt.Sprint("q:{x", i, "}:1")}
		write(keys[0])
		s := newStore(client, "g")
		a := ask{seq: 1}
		a.needs[0] = need{length: 1e6, limit: 10, now: 100, ahead: 100, parts: [2]known{{-1, 0, -1}, {-1, 0, -1}}}
		calls := []shards.Call{s.call(t.Context(), keys, &a, 1)}
		if err := s.run(t.Context(), calls); err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		values, err := calls[0].Cmd.Int64Slice()
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		if l, err := readLeases(values, &a, 1); err != nil || l.parts[0][0].given > 10 {
			t.Errorf("%d: %+v, %v", i, l, err)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	a := &ask{}
	a.needs[0] = need{length: 1e6, limit: 10, now: 5, ahead: 5, next: 1}
	if _, err := readLeases([]int64{1_800_000_000_000_000, 10, 10, 10, 1, 1, 1}, a, 1); err != nil {
		t.Fatal(err)
	}
	for why, values := range map[string][]int64{
		"nothing":              {},
		"too few":              {1_800_000_000_000_000, 10, 10, 10, 1, 1},
		"of two windows":       {1_800_000_000_000_000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		"no time":              {0, 1, 1, 1, 1, 1, 1},
		"a time far off":       {1 << 60, 1, 1, 1, 1, 1, 1},
		"more than was wanted": {1_800_000_000_000_000, 11, 11, 11, 1, 1, 1},
		"less than nothing":    {1_800_000_000_000_000, -1, 1, 1, 1, 1, 1},
		"more of the next":     {1_800_000_000_000_000, 1, 1, 1, 2, 2, 2},
		"a count below 0":      {1_800_000_000_000_000, 1, -1, 1, 1, 1, 1},
		"a count beyond all":   {1_800_000_000_000_000, 1, 1 << 60, 1, 1, 1, 1},
	} {
		if _, err := readLeases(values, a, 1); err == nil {
			t.Errorf("%s is an answer", why)
		}
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	good := Options{Fleet: "f", Member: "g", Gateways: 1, Log: slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		why    string
		change func(*Options)
		says   string
	}{
		{"no fleet", func(o *Options) { o.Fleet = "" }, "names of fleet"},
		{"no name", func(o *Options) { o.Member = "" }, "names of fleet"},
		{"no gateway", func(o *Options) { o.Gateways = 0 }, "number of gateways"},
		{"no log", func(o *Options) { o.Log = nil }, "log"},
		{"a negative limit", func(o *Options) { o.Default.Second = -1 }, "all senders: -1 per second"},
		{"a limit that nobody can count", func(o *Options) { o.Senders = map[string]Limits{"a": {Day: MaxLimit + 1}} }, `sender "a": 1000000001 per day`},
		{"less an hour than a second", func(o *Options) { o.Default = Limits{Second: 9, Hour: 8} }, "never be used up"},
	} {
		o := good
		tt.change(&o)
		if _, err := New(nil, o); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.says)
		}
	}
	if _, err := New(nil, good); err != nil {
		t.Error(err)
	}
}

func TestWhoseLimits(t *testing.T) {
	q, err := New(nil, Options{Fleet: "f", Member: "g", Gateways: 1, Log: slog.New(slog.DiscardHandler),
		Default: Limits{Hour: 1000}, Senders: map[string]Limits{"free": {}, "own": {Second: 5, Day: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"free": "", "own": "second day ", "any": "hour "} {
		got := ""
		s := q.Of(name)
		if s != q.Of(name) {
			t.Errorf("%s is made twice", name)
		}
		if s != nil {
			for _, st := range s.Standings(nil) {
				got += st.Name + " "
			}
		}
		if got != want {
			t.Errorf("%s has limits of %q, want %q", name, got, want)
		}
	}
}

// Metrics name 200 senders, and add up the others.
func TestMetrics(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 5}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		for i := range 203 {
			s := g.Of(fmt.Sprint("s", i))
			taken := s.Take(context.Background(), 7)
			s.Return(&taken, 1)
		}
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(g)
		err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP push_gateway_limits_alone 1 = Redis does not answer, and the gateway admits its part of the limits.
# TYPE push_gateway_limits_alone gauge
push_gateway_limits_alone 0
# HELP push_gateway_limits_gateways Gateways that share the limits of senders, as Redis said last.
# TYPE push_gateway_limits_gateways gauge
push_gateway_limits_gateways 1
`), "push_gateway_limits_alone", "push_gateway_limits_gateways")
		if err != nil {
			t.Error(err)
		}
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, family := range all {
			for _, m := range family.GetMetric() {
				name := family.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"push_gateway_sender_messages_total admitted s0": 5, "push_gateway_sender_messages_total refused s199": 2, "push_gateway_sender_messages_total returned s7": 1,
			"push_gateway_sender_messages_total admitted other": 15, "push_gateway_sender_messages_total refused other": 6, "push_gateway_sender_remaining minute s3": 1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		if n := len(got); n != 2+200*4+3 {
			t.Errorf("%d series", n)
		}
	})
}

// A sender may be called as the sum of the others is.
func TestMetricsOfASenderCalledOther(t *testing.T) {
	for _, more := range []int{0, maxNames} {
		inFleet(t, Options{Default: Limits{Minute: 5}}, func(f *fleet) {
			g := f.join()
			defer g.close()
			taken := g.Of(otherName).Take(context.Background(), 3)
			if taken.Len() != 3 {
				t.Errorf("%d were admitted", taken.Len())
			}
			for i := range more {
				g.Of(fmt.Sprint("s", i)).Take(context.Background(), 1)
			}
			reg := prometheus.NewPedanticRegistry()
			reg.MustRegister(g)
			all, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, family := range all {
				for _, m := range family.GetMetric() {
					if labels := m.GetLabel(); family.GetName() == "push_gateway_sender_messages_total" {
						got[labels[0].GetValue()+" "+labels[1].GetValue()] = m.GetCounter().GetValue()
					}
				}
			}
			// The last of the 200 others is beyond those with names.
			if want := 3 + float64(more/maxNames); got["admitted other"] != want {
				t.Errorf("%v of others, want %v", got["admitted other"], want)
			}
		})
	}
}

// On real servers, where time is real: two gateways that want three times as much as they may.
func TestRealServer(t *testing.T) {
	for kind, addrs := range map[string]func(t *testing.T) []string{
		"single":  func(t *testing.T) []string { return []string{localtest.Redis(t, local.RedisOptions{}).Addr()} },
		"cluster": func(t *testing.T) []string { return localtest.RedisCluster(t, local.RedisOptions{}).Addrs() },
	} {
		t.Run(kind, func(t *testing.T) {
			at := addrs(t)
			ctx, stop := context.WithCancel(t.Context())
			var gateways []*Quotas
			ended := make(chan struct{}, 2)
			fleet := fmt.Sprint("real", rand.Uint64())
			for i := range 2 {
				q, err := New(shardstest.Connect(t, at...), Options{Fleet: fleet, Member: fmt.Sprint(i), Gateways: 2, Default: Limits{Minute: 2000, Day: 3000}, Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				gateways = append(gateways, q)
				go func() { q.Run(ctx); ended <- struct{}{} }()
			}
			admitted, refused := 0, 0
			for i := 0; refused < 100 && i < 100_000; i++ {
				taken := gateways[i%2].Of("a").Take(ctx, 10)
				if admitted += taken.Len(); taken.Len() == 0 {
					refused++
				}
			}
			// A minute may end meanwhile, and the day, once.
			if admitted < 2000 || admitted > 6000 {
				t.Errorf("%d were admitted", admitted)
			}
			if st := gateways[0].Of("a").Standings(nil); st[0].Part || st[1].Part {
				t.Errorf("it is alone: %+v", st)
			}
			stop()
			<-ended
			<-ended
		})
	}
}

// What a message costs that finds a lease.
func BenchmarkTake(b *testing.B) {
	client := shardstest.Start(b)
	q, err := New(client, Options{Fleet: "f", Member: "g", Gateways: 1, Log: slog.New(slog.DiscardHandler), Default: Limits{Second: MaxLimit, Minute: MaxLimit, Hour: MaxLimit, Day: MaxLimit}})
	if err != nil {
		b.Fatal(err)
	}
	s := q.Of("orders")
	now := q.now()
	s.mu.Lock()
	s.guess(now)
	s.busy, s.asked = true, now
	for i := range s.windows { // a lease, as if of windows that never end
		w := &s.windows[i]
		w.cur.held, w.cur.told, w.next.told, w.end = 1<<60, true, true, 1<<62
		w.length = w.end
	}
	s.mu.Unlock()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if taken := q.Of("orders").Take(ctx, 1); taken.Len() != 1 {
			b.Fatal("refused")
		}
	}
}
