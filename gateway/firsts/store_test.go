package firsts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
)

func TestMain(m *testing.M) {
	shards.LogTo(slog.New(slog.DiscardHandler)) // of a Redis that is away on purpose
	goleak.VerifyTestMain(m)
}

// hook is between a store and its Redis.
type hook struct {
	slow     atomic.Int64           // ns before each command
	broken   atomic.Bool            // commands fail
	hangs    atomic.Pointer[string] // commands about this key hang; nil = none do
	commands atomic.Int64
	longest  atomic.Int64 // keys of one command
}

var errBroken = errors.New("broken")

func (h *hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *hook) before(ctx context.Context, cmds ...redis.Cmder) error {
	if name := cmds[0].Name(); name != "mget" && name != "set" && name != "get" {
		return nil // of a new connection
	}
	if key := h.hangs.Load(); key != nil && slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return len(c.Args()) > 1 && fmt.Sprint(c.Args()[1]) == *key }) {
		<-ctx.Done()
		return ctx.Err()
	}
	h.commands.Add(1)
	n := int64(len(cmds))
	if n == 1 {
		n = int64(len(cmds[0].Args()) - 1)
	}
	h.longest.Store(max(h.longest.Load(), n))
	if d := time.Duration(h.slow.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if h.broken.Load() {
		return errBroken
	}
	return nil
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.before(ctx, cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.before(ctx, cmds...); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// world is a store that runs, in virtual time.
type world struct {
	*Store
	hook
	redis  *embedded.Redis
	client shards.Client
	stop   func() // ends the store, and waits for it

	mu   sync.Mutex
	told []string // guarded by mu
}

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		redis, err := embedded.StartPipeRedis()
		if err != nil {
			t.Fatal(err)
		}
		w := &world{redis: redis}
		o := shards.DefaultOptions()
		o.Addrs, o.Dialer = []string{redis.Addr()}, redis.Dial
		if w.client, err = shards.Open(o); err != nil {
			t.Fatal(err)
		}
		w.client.AddHook(&w.hook)
		w.Store, err = New(w.client, Options{Fleet: "f", Kept: time.Minute, Log: slog.New(slog.DiscardHandler), Tell: w.hear})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		w.stop = sync.OnceFunc(func() { stop(); running.Wait() })
		test(t, w)
		w.stop()
		_ = w.client.Close()
		redis.Close()
		time.Sleep(2 * time.Second) // the library dials once more
		synctest.Wait()
	})
}

func (w *world) hear(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprint(err))
}

// named is a name for tests.
func named(text string) (name [16]byte) {
	copy(name[:], text)
	return name
}

// keyOf is the key of a name in Redis.
func keyOf(s *Store, text string) string {
	name := named(text)
	return s.prefix + string(name[:])
}

func (w *world) keep(name, text string) { w.Keep(named(name), []byte(text)) }

// written waits until everything that is kept is written, the last of it behind a pause.
func (w *world) written() {
	time.Sleep(2 * writeEvery)
	synctest.Wait()
}

func (w *world) find(ctx context.Context, texts ...string) []string {
	names := make([][16]byte, len(texts))
	for i, text := range texts {
		names[i] = named(text)
	}
	return w.Find(ctx, names, nil)
}

// counted is what a store has counted: found, none, late, unasked, kept and lost.
func (w *world) counted() [6]int64 {
	c := &w.counts
	return [6]int64{c.found.Load(), c.none.Load(), c.late.Load(), c.unasked.Load(), c.kept.Load(), c.lost.Load()}
}

func TestTheFirstStands(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keep("a", "1")
		w.keep("a", "2")
		w.keep("b", "3\x00")
		w.written()
		if got := w.find(t.Context(), "a", "x", "b", "a"); !slices.Equal(got, []string{"1", "", "3\x00", "1"}) {
			t.Errorf("%q", got)
		}
		if got := w.counted(); got != [6]int64{3, 1, 0, 0, 3, 0} {
			t.Errorf("counted %v", got)
		}
		w.redis.Mini.FastForward(time.Minute)
		if got := w.find(t.Context(), "a"); got[0] != "" {
			t.Errorf("after its time: %q", got)
		}
		other, err := New(w.client, Options{Fleet: "g", Kept: time.Minute, Log: slog.New(slog.DiscardHandler)})
		if err != nil || other.prefix == w.prefix {
			t.Errorf("another fleet has the keys %s…, %v", other.prefix, err)
		}
	})
}

// Many that wait go with one command, and each caller gets its own; one that wants more than
// a command may have is served all the same.
func TestManyAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i := range 3 * most {
			w.keep(fmt.Sprint(i), fmt.Sprint("v", i))
		}
		w.written()
		w.commands.Store(0)
		w.longest.Store(0)
		w.slow.Store(int64(patience / 10)) // five commands after one another are in time
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				if got := w.find(t.Context(), fmt.Sprint(i), "no", fmt.Sprint(i+1)); got[0] != fmt.Sprint("v", i) || got[1] != "" || got[2] != fmt.Sprint("v", i+1) {
					t.Errorf("%d: %q", i, got)
				}
			})
		}
		callers.Wait()
		if n, longest := w.commands.Load(), w.longest.Load(); n > 2+3*1000/most || longest > most {
			t.Errorf("%d commands of up to %d keys", n, longest)
		}
		names := make([]string, most+1)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		if got := w.find(t.Context(), names...); got[most] != fmt.Sprint("v", most) {
			t.Errorf("the last of many is %q", got[most])
		}
	})
}

// Nobody waits longer for Redis than patience, and once it was late nobody waits at all
// until it answers in time.
func TestSlowRedis(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keep("a", "1")
		synctest.Wait()
		w.slow.Store(int64(100 * time.Millisecond))
		began := time.Now()
		if got := w.find(t.Context(), "a"); got[0] != "" || time.Since(began) != patience {
			t.Errorf("%q after %v", got, time.Since(began))
		}
		time.Sleep(patience) // its answer has come, too late
		synctest.Wait()
		began = time.Now()
		for range 10 {
			if got := w.find(t.Context(), "a"); got[0] != "" || time.Since(began) != 0 {
				t.Errorf("while it is away: %q after %v", got, time.Since(began))
			}
		}
		w.commands.Store(0)
		time.Sleep(3 * rest)
		if got := w.find(t.Context(), "a"); got[0] != "" || w.commands.Load() > 3 {
			t.Errorf("it is slow still, and %q; asked %d times", got, w.commands.Load())
		}
		w.slow.Store(0)
		time.Sleep(rest + patience)
		if got := w.find(t.Context(), "a"); got[0] != "1" {
			t.Errorf("it is back, and %q", got)
		}
		if got := w.counted(); got[2] != 1 || got[3] != 11 {
			t.Errorf("counted %v", got)
		}
		if len(w.told) != 2 || !strings.Contains(w.told[0], "it took 100ms") || w.told[1] != "<nil>" {
			t.Errorf("told %q", w.told)
		}
	})
}

// While Redis fails nothing is found and nothing waits, and what would have been kept is lost.
func TestRedisFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.keep("a", "1")
		time.Sleep(writeEvery)
		w.broken.Store(true)
		w.keep("b", "2")
		time.Sleep(writeEvery)
		if got := w.find(t.Context(), "a"); got[0] != "" {
			t.Errorf("%q", got)
		}
		w.keep("c", "3")
		time.Sleep(writeEvery)
		w.broken.Store(false)
		time.Sleep(rest + time.Millisecond)
		w.keep("d", "4")
		time.Sleep(writeEvery)
		if got := w.find(t.Context(), "a", "b", "c", "d"); !slices.Equal(got, []string{"1", "", "", "4"}) {
			t.Errorf("%q", got)
		}
		if got := w.counted(); got != [6]int64{2, 2, 0, 1, 2, 2} {
			t.Errorf("counted %v", got)
		}
		if last := w.told[len(w.told)-1]; last != "<nil>" || !strings.Contains(w.told[0], "broken") || strings.Contains(w.told[0], "i:f:") {
			t.Errorf("told %q", w.told)
		}
	})
}

// A Redis that hangs is given up soon, also by whoever waits for the next command.
func TestRedisHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.slow.Store(int64(time.Hour))
		began := time.Now()
		w.find(t.Context(), "a")
		time.Sleep(longest - patience - 10*time.Millisecond)
		w.find(t.Context(), "b")
		if took := time.Since(began); took != longest {
			t.Errorf("whoever came at last waited until %v, want until it is given up", took)
		}
		if w.find(t.Context(), "c"); time.Since(began) != longest {
			t.Errorf("after that somebody waited until %v", time.Since(began))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.told) != 1 {
			t.Errorf("told %q", w.told)
		}
	})
}

// While a part of a cluster is away, none of it is asked, and it is told once.
func TestPartOfACluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.cluster = true
		w.keep("good", "1")
		time.Sleep(writeEvery)
		bad := keyOf(w.Store, "bad")
		w.hangs.Store(&bad)
		for range 20 {
			w.find(t.Context(), "good", "bad")
			time.Sleep(time.Second)
		}
		w.hangs.Store(nil)
		time.Sleep(rest + patience)
		if got := w.find(t.Context(), "good", "bad"); got[0] != "1" {
			t.Errorf("all of it is back, and %q", got)
		}
		if len(w.told) != 2 || w.counts.late.Load() != 2 {
			t.Errorf("told %q, %d were late", w.told, w.counts.late.Load())
		}
	})
}

// Who is told, and takes long, keeps nobody waiting who sends.
func TestSlowlyTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.o.Tell = func(error) { time.Sleep(time.Minute) }
		w.broken.Store(true)
		w.find(t.Context(), "a")
		time.Sleep(time.Second)
		began := time.Now()
		w.keep("b", "1")
		if w.find(t.Context(), "a"); time.Since(began) > patience {
			t.Errorf("somebody waited for %v", time.Since(began))
		}
	})
}

// A caller that goes does not wait, and what Redis says later hurts nobody.
func TestCallerGoes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.slow.Store(int64(20 * time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		if got := w.find(ctx, "a"); len(got) != 1 || got[0] != "" || time.Since(began) != time.Millisecond {
			t.Errorf("%q after %v", got, time.Since(began))
		}
	})
}

// What waits for Redis is bounded.
func TestRoom(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.slow.Store(int64(patience))
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() { w.find(t.Context(), make([]string, room/2)...) })
		}
		for range 2*room + 10 { // the writer has as many again
			w.keep("a", "1")
		}
		synctest.Wait()
		w.Store.mu.Lock()
		names, values := w.names, len(w.values.names)
		w.Store.mu.Unlock()
		if names > room || values > room {
			t.Errorf("%d names and %d values wait", names, values)
		}
		callers.Wait()
		if got := w.counted(); got[3] < room/2 || got[5] < 10 {
			t.Errorf("counted %v", got)
		}
	})
}

// What was accepted last is written before the end.
func TestEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.slow.Store(int64(20 * time.Millisecond))
		for i := range 3 * most {
			w.keep(fmt.Sprint(i), "v")
		}
		w.stop()
		if got := w.counted(); got[4] != 3*most {
			t.Errorf("counted %v", got)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.slow.Store(int64(time.Hour))
		for range room {
			w.keep("a", "v")
		}
		began := time.Now()
		if w.stop(); time.Since(began) != leaving {
			t.Errorf("Redis hangs, and the end took %v", time.Since(began))
		}
		if got := w.counted(); got[5] != room {
			t.Errorf("Redis hangs: counted %v", got)
		}
	})
}

// Foreign keys and other types are nothing that was kept.
func TestForeignKeys(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := w.client.HSet(t.Context(), keyOf(w.Store, "a"), "x", "y").Err(); err != nil {
			t.Fatal(err)
		}
		w.keep("b", "1")
		synctest.Wait()
		if got := w.find(t.Context(), "a", "b"); got[0] != "" || got[1] != "1" {
			t.Errorf("%q", got)
		}
	})
}

func TestMetrics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(w.Store)
		w.keep("a", "1")
		synctest.Wait()
		w.find(t.Context(), "a", "b", "c")
		want := `# HELP push_gateway_firsts_kept_total Accepted messages whose first records were to be kept in Redis: kept, lost (a repeat is written again).
# TYPE push_gateway_firsts_kept_total counter
push_gateway_firsts_kept_total{result="kept"} 1
push_gateway_firsts_kept_total{result="lost"} 0
# HELP push_gateway_firsts_looked_total Messages with ids of their senders that were looked for among those accepted before: found, none, late (Redis was slow), unasked (it is away).
# TYPE push_gateway_firsts_looked_total counter
push_gateway_firsts_looked_total{result="found"} 1
push_gateway_firsts_looked_total{result="late"} 0
push_gateway_firsts_looked_total{result="none"} 2
push_gateway_firsts_looked_total{result="unasked"} 0
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errBroken }})
	defer func() { _ = client.Close() }()
	log := slog.New(slog.DiscardHandler)
	for why, o := range map[string]Options{"no fleet": {Kept: 1, Log: log}, "no time": {Fleet: "f", Log: log}, "no log": {Fleet: "f", Kept: 1}} {
		if _, err := New(client, o); err == nil {
			t.Error(why)
		}
	}
}
