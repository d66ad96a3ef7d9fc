package limits

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// slotChecker sees every command of a client and records those whose keys are
// in more than one slot. A cluster would refuse them; embedded Redis does not.
type slotChecker struct {
	t    *testing.T
	mu   sync.Mutex
	seen int
}

func (s *slotChecker) check(cmd redis.Cmder) {
	args := cmd.Args()
	name := strings.ToUpper(fmt.Sprint(args[0]))
	if name != "EVALSHA" && name != "EVAL" {
		return
	}
	slots := map[int]bool{}
	for _, key := range args[3 : 3+args[2].(int)] {
		slots[shards.Slot(*key.(*string))] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if len(slots) != 1 {
		s.t.Errorf("%s of %d keys touches %d slots", name, args[2], len(slots))
	}
}

func (s *slotChecker) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *slotChecker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { s.check(cmd); return next(ctx, cmd) }
}

func (s *slotChecker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.check(cmd)
		}
		return next(ctx, cmds)
	}
}

func TestEveryCommandStaysInOneSlot(t *testing.T) {
	client := shardstest.Start(t)
	checker := &slotChecker{t: t}
	client.AddHook(checker)
	l := limiter(t, client, perUser(1, time.Hour))
	l.cluster = true
	reqs := requests(3000, "u")
	if err := l.Decide(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	if checker.seen < shards.Users {
		t.Errorf("%d commands seen, want one per shard", checker.seen)
	}
}

func requests(n int, name string) []*Request {
	reqs := make([]*Request, n)
	for i := range reqs {
		reqs[i] = &Request{Owner: fmt.Sprintf("%s-%d", name, i), ID: fmt.Sprintf("id-%d", i), Type: "order", At: start}
	}
	return reqs
}

func TestRealServer(t *testing.T) {
	for kind, addrs := range map[string]func(t *testing.T) []string{
		"single":  func(t *testing.T) []string { return []string{localtest.Require(t).Redis} },
		"cluster": func(t *testing.T) []string { return localtest.RedisCluster(t, local.RedisOptions{}).Addrs() },
	} {
		t.Run(kind, func(t *testing.T) {
			client := shardstest.Connect(t, addrs(t)...)
			if err := shards.CheckServer(t.Context(), client, true); err != nil {
				t.Fatal(err)
			}
			evicted, unfit, err := shards.Evictions(t.Context(), client)
			if len(evicted) == 0 || unfit != nil || err != nil {
				t.Errorf("%v evicted, %v, %v", evicted, unfit, err)
			}
			for server, n := range evicted {
				if n != 0 {
					t.Errorf("%s has evicted %d", server, n)
				}
			}
			l := limiter(t, client, perUser(2, time.Minute))
			name := fmt.Sprintf("limits-test-%d", time.Now().UnixNano())
			reqs := requests(3000, name)
			for round, want := range []bool{true, true, false} {
				for i, r := range reqs {
					r.ID = fmt.Sprintf("id-%d-%d", i, round)
					// The state that the round before read: it conflicts, and
					// the script returns the fresh one.
				}
				for range 2 { // the same request again spends nothing
					if err := l.Decide(t.Context(), reqs); err != nil {
						t.Fatal(err)
					}
				}
				for _, r := range reqs {
					if r.Allowed != want {
						t.Fatalf("round %d: %s allowed: %v", round, r.ID, r.Allowed)
					}
				}
			}
			if ttl := client.PTTL(t.Context(), shards.LimiterKey(shards.UserShard(reqs[0].Owner), reqs[0].Owner)).Val(); ttl <= 0 || ttl > time.Minute+skew {
				t.Errorf("expires in %v", ttl)
			}
			owners := make([]string, len(reqs))
			for i, r := range reqs {
				owners[i] = r.Owner
			}
			for _, want := range []int{len(owners), 0} {
				if n, err := Forget(t.Context(), client, owners...); err != nil || n != want {
					t.Errorf("%d states forgotten, want %d: %v", n, want, err)
				}
			}
		})
	}
}

// BenchmarkDecide decides and writes batches of users, each with a state of
// three events, with three rules, all allowed. In a fleet that is not behind,
// batches are small.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []int{10_000, 1000, 100} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmarkDecide(b, size) })
	}
}

func benchmarkDecide(b *testing.B, size int) {
	client := shardstest.Connect(b, localtest.Require(b).Redis)
	l := limiter(b, client, perUser(1000, time.Hour),
		Rule{Name: "daily", Per: PerUserType, Max: 1000, Calendar: Day, Algorithm: EventSet},
		Rule{Name: "segment", Per: PerSegment, Segments: []string{"new"}, Max: 500, Window: 24 * time.Hour})
	reqs := requests(10_000, "bench")
	keys := make([]string, len(reqs))
	for i, r := range reqs {
		r.App, r.Lane, r.Channel, r.Priority, r.Segments = "shop", "push.promotional", "push", 3, []string{"new"}
		keys[i] = shards.LimiterKey(shards.UserShard(r.Owner), r.Owner)
	}
	fixed := make([]event, 3)
	for i := range fixed {
		fixed[i] = event{id: uint64(i), kind: typeHash("order"), at: start.UnixMilli(), keep: seconds(start.UnixMilli()) + 3600}
	}
	state := encoded(fixed...)
	b.ReportAllocs()
	var ours, redis time.Duration // CPU time, which does not depend on the load of the machine
	for b.Loop() {
		b.StopTimer()
		pipe := client.Pipeline()
		for _, key := range keys {
			pipe.Set(context.Background(), key, state, time.Minute)
		}
		if _, err := pipe.Exec(context.Background()); err != nil {
			b.Fatal(err)
		}
		for _, r := range reqs {
			r.State = state
		}
		ours, redis = ours-ownCPU(b), redis-redisCPU(b, client)
		b.StartTimer()
		for of := range slices.Chunk(reqs, size) {
			if err := l.Decide(context.Background(), of); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		ours, redis = ours+ownCPU(b), redis+redisCPU(b, client)
		b.StartTimer()
	}
	b.ReportMetric(ours.Seconds()*1e6/float64(b.N*len(reqs)), "own-us/decision")
	b.ReportMetric(redis.Seconds()*1e6/float64(b.N*len(reqs)), "redis-us/decision")
	b.ReportMetric(float64(b.N*len(reqs))/b.Elapsed().Seconds(), "decisions/s")
}

// ownCPU is the CPU time of this process.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// redisCPU is the CPU time of the server.
func redisCPU(b *testing.B, client redis.UniversalClient) (used time.Duration) {
	b.Helper()
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used
}
