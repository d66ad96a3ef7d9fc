package embedded_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, r *embedded.Redis) redis.UniversalClient {
	t.Helper()
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{r.Addr()}, r.Dial
	return shardstest.Open(t, o)
}

func start(t *testing.T) (*embedded.Redis, redis.UniversalClient) {
	t.Helper()
	r, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, open(t, r)
}

// The same table is asked of a real Redis when PUSHFLEET_TEST_REDIS names one.
func TestCommandsAnswerAsRedisBloom(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		_, client := start(t)
		testCommands(t, client)
	})
	t.Run("real", func(t *testing.T) {
		addr := os.Getenv("PUSHFLEET_TEST_REDIS")
		if addr == "" {
			t.Skip("PUSHFLEET_TEST_REDIS is not set")
		}
		testCommands(t, shardstest.Connect(t, addr))
	})
}

func testCommands(t *testing.T, client redis.UniversalClient) {
	ctx := t.Context()
	// A real server is shared: names of our own, and nothing left behind.
	prefix := fmt.Sprintf("bf-test-%d-", time.Now().UnixNano())
	defer func() {
		for _, key := range []string{"a", "b", "c", "s"} {
			client.Del(context.WithoutCancel(ctx), prefix+key)
		}
	}()
	for _, c := range []struct {
		cmd  string
		want string
		why  string
	}{
		{"BF.EXISTS a x", "0", "a missing filter has nothing"},
		{"BF.MEXISTS a x y", "[0 0]", "one answer per item also without a filter"},
		{"BF.INSERT a NOCREATE ITEMS x", "ERR not found", "nothing is made"},
		{"BF.INFO a", "ERR not found", ""},
		{"BF.CARD a", "0", ""},
		{"BF.RESERVE a 0.001 3 NONSCALING", "OK", ""},
		{"BF.RESERVE a 0.001 3 NONSCALING", "ERR item exists", ""},
		{"BF.MADD a x y x", "[1 1 0]", "a known item answers 0"},
		{"BF.INSERT a NOCREATE ITEMS y z", "[0 1]", ""},
		{"BF.INSERT a CAPACITY 9 ITEMS x v w", "[0 ERR non scaling filter is full]", "the answer ends at the first without room"},
		{"BF.ADD a v", "ERR non scaling filter is full", ""},
		{"BF.ADD a x", "0", "a full filter still knows what it has"},
		{"BF.MEXISTS a x y z", "[1 1 1]", ""},
		{"BF.CARD a", "3", ""},
		{"BF.ADD b x", "1", "an add makes the filter"},
		{"EXISTS a b", "2", "ordinary commands see filters"},
		{"DEL a", "1", ""},
		{"BF.MEXISTS a x", "[0]", "a deleted filter is gone"},
		{"SET s text", "OK", ""},
		{"BF.MEXISTS s x", "[0]", "a key that is no filter has nothing"},
		{"BF.RESERVE s 0.01 10", "WRONGTYPE Operation against a key holding the wrong kind of value", ""},
		{"BF.RESERVE c 2 10", "ERR (0 < error rate range < 1)", ""},
		{"BF.RESERVE c 0.1 0", "ERR (capacity should be larger than 0)", ""},
		{"BF.MADD c", "ERR wrong number of arguments for 'bf.madd' command", ""},
		{"BF.INSERT c ITEMS", "ERR wrong number of arguments for 'bf.insert' command", ""},
	} {
		var args []any
		for word := range strings.FieldsSeq(c.cmd) {
			if len(word) == 1 && strings.Contains("abcs", word) {
				word = prefix + word
			}
			args = append(args, word)
		}
		reply, err := client.Do(ctx, args...).Result()
		got := fmt.Sprint(reply)
		if err != nil {
			got = strings.TrimSpace(err.Error())
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q (%s)", c.cmd, got, c.want, c.why)
		}
	}
}

func TestFilterErrorRate(t *testing.T) {
	_, client := start(t)
	ctx := t.Context()
	const n, rate = 20_000, 0.001
	if err := client.Do(ctx, "BF.RESERVE", "f", rate, n, "NONSCALING").Err(); err != nil {
		t.Fatal(err)
	}
	added, probes := []any{"BF.MADD", "f"}, []any{"BF.MEXISTS", "f"}
	for i := range n {
		added = append(added, fmt.Sprintf("in-%d", i))
		probes = append(probes, fmt.Sprintf("out-%d", i))
	}
	if err := client.Do(ctx, added...).Err(); err != nil {
		t.Fatal(err)
	}
	added[0] = "BF.MEXISTS"
	for i, v := range client.Do(ctx, added...).Val().([]any) {
		if v != int64(1) {
			t.Fatalf("item %d was added and is not there", i)
		}
	}
	hits := 0.0
	for _, v := range client.Do(ctx, probes...).Val().([]any) {
		hits += float64(v.(int64))
	}
	// Five standard deviations of a binomial around the promised rate.
	if limit := n*rate + 5*math.Sqrt(n*rate); hits > limit {
		t.Errorf("%v false positives of %d, want at most %v", hits, n, limit)
	}
}

func TestScalingFilterGrows(t *testing.T) {
	_, client := start(t)
	ctx := t.Context()
	for i := range 1000 { // ten times the default capacity
		if err := client.BFAdd(ctx, "f", fmt.Sprint(i)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := client.BFInfo(ctx, "f").Result()
	if err != nil {
		t.Fatal(err)
	}
	if info.Filters < 2 || info.Capacity < 1000 || info.ItemsInserted < 950 {
		t.Errorf("got %+v, want several layers for about 1000 items", info)
	}
	for i := range 1000 {
		if !client.BFExists(ctx, "f", fmt.Sprint(i)).Val() {
			t.Fatalf("%d was added and is not there", i)
		}
	}
}

func TestFiltersInsideScripts(t *testing.T) {
	_, client := start(t)
	got, err := client.Eval(t.Context(), `redis.call('BF.MADD', KEYS[1], 'x'); return redis.call('BF.MEXISTS', KEYS[1], 'x', 'y')`,
		[]string{"f"}).Result()
	if err != nil || fmt.Sprint(got) != "[1 0]" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFiltersAndKeysExpireByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := embedded.StartPipeRedis()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		client := open(t, r)
		defer client.Close()
		ctx := t.Context()
		if err := client.BFReserve(ctx, "f", 0.01, 100).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.BFAdd(ctx, "f", "x").Err(); err != nil {
			t.Fatal(err)
		}
		client.ExpireAt(ctx, "f", time.Now().Add(6*time.Hour))
		time.Sleep(6*time.Hour - time.Second)
		if !client.BFExists(ctx, "f", "x").Val() {
			t.Error("gone before its time")
		}
		time.Sleep(2 * time.Second)
		if client.BFExists(ctx, "f", "x").Val() {
			t.Error("still there after its time")
		}
	})
}

func TestWipeAndFlushTakeFiltersToo(t *testing.T) {
	r, client := start(t)
	ctx := t.Context()
	for name, wipe := range map[string]func(){
		"Wipe":     r.Wipe,
		"FLUSHALL": func() { client.FlushAll(ctx) },
	} {
		if err := client.BFAdd(ctx, "f", "x").Err(); err != nil {
			t.Fatal(err)
		}
		wipe()
		if client.BFExists(ctx, "f", "x").Val() {
			t.Errorf("%s left a filter", name)
		}
	}
}

func TestAwayAndBack(t *testing.T) {
	r, client := start(t)
	ctx := t.Context()
	client.BFAdd(ctx, "f", "x")
	r.Close()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := client.Ping(short).Err(); err == nil {
		t.Error("a closed server answered")
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	if found, err := client.BFExists(ctx, "f", "x").Result(); err != nil || !found {
		t.Errorf("after the restart: %v, %v", found, err)
	}
}

func TestManyConnectionsShareFilters(t *testing.T) {
	_, client := start(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				key := fmt.Sprintf("f%d", i%5)
				if err := client.BFAdd(ctx, key, fmt.Sprintf("%d-%d", g, i)).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for g := range 8 {
		for i := range 50 {
			if !client.BFExists(ctx, fmt.Sprintf("f%d", i%5), fmt.Sprintf("%d-%d", g, i)).Val() {
				t.Fatalf("%d-%d is missing", g, i)
			}
		}
	}
}

func TestCheckServerAcceptsEmbedded(t *testing.T) {
	_, client := start(t)
	if err := shards.CheckServer(t.Context(), client, true); err != nil {
		t.Error(err)
	}
}
