package users_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

func outOf(n int) []*push.User {
	out := make([]*push.User, n)
	for i := range out {
		out[i] = &push.User{Limiter: []byte("left over"), Devices: make([]push.Device, 3)}
	}
	return out
}

func TestFetch(t *testing.T) {
	eachRedis(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		w.Must(w.Redis.Set(w.Ctx, shards.LimiterKey(shards.UserShard("ada"), "ada"), "state", 0).Err())
		names := []string{"ada", "nobody", "ada", "dee"}
		out := outOf(len(names))
		w.Must(users.NewReader(w.Redis, true).Fetch(w.Ctx, names, out))
		for i, want := range []struct {
			devices, types int
			limiter        string
		}{{2, 1, "state"}, {0, 0, ""}, {2, 1, "state"}, {0, 2, ""}} {
			u := out[i]
			if len(u.Devices) != want.devices || len(u.Preferences.Types) != want.types || string(u.Limiter) != want.limiter {
				t.Errorf("%s: %+v, want %+v", names[i], *u, want)
			}
		}
		out = outOf(1)
		w.Must(users.NewReader(w.Redis, false).Fetch(w.Ctx, names[:1], out))
		if out[0].Limiter != nil {
			t.Error("a reader without limits leaves an old limiter state")
		}
	})
}

func TestFetchOfNobodyAsksNothing(t *testing.T) {
	if err := users.NewReader(nil, true).Fetch(context.Background(), nil, nil); err != nil {
		t.Error(err)
	}
}

func TestFetchPassesTheServersErrorOn(t *testing.T) {
	eachRedis(t, func(w *world) {
		key := shards.EpochKey(shards.UserShard("ada"))
		// A marker of a form we do not know is not a marker.
		w.Must(w.Redis.Set(w.Ctx, key, "newer", 0).Err())
		if err := users.NewReader(w.Redis, false).Fetch(w.Ctx, []string{"ada"}, outOf(1)); !errors.Is(err, record.ErrVersion) {
			t.Errorf("error %v, want ErrVersion", err)
		}
		if _, err := users.NewReader(w.Redis, false).Stored(w.Ctx, "ada"); !errors.Is(err, record.ErrVersion) {
			t.Errorf("profile: error %v, want ErrVersion", err)
		}
		w.Must(w.Redis.Del(w.Ctx, key).Err())
		_, err := users.NewReader(w.Redis, false).Stored(w.Ctx, "ada")
		if s, is := users.IsUnbuilt(err); !is || s != shards.UserShard("ada") {
			t.Errorf("profile of a shard that is not there: %v", err)
		}
		ctx, cancel := context.WithCancel(w.Ctx)
		cancel()
		if err := users.NewReader(w.Redis, false).Fetch(ctx, []string{"ada"}, outOf(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want that of the context", err)
		}
		if _, err := users.NewReader(w.Redis, false).Stored(ctx, "ada"); !errors.Is(err, context.Canceled) {
			t.Errorf("profile: error %v, want that of the context", err)
		}
	})
}

// A raw command takes an error reply for an answer; it must come out as one.
func TestFetchSeesAnErrorReply(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.Mini.SetError("LOADING the data set is being loaded")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	defer func() { _ = client.Close() }()
	err = users.NewReader(client, false).Fetch(context.Background(), []string{"ada"}, outOf(1))
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("LOADING")) {
		t.Errorf("error %v, want the server's", err)
	}
}

// Owners with a record, and without, as most bare devices are. In-process, the server's own
// work and allocations are in the figures: run it with real servers to see the reader's.
func BenchmarkFetch10000(b *testing.B) { benchmarkFetch(b, 10_000) }

// A batch as small as where nothing waits.
func BenchmarkFetch60(b *testing.B) { benchmarkFetch(b, 60) }

func benchmarkFetch(b *testing.B, n int) {
	addr := realRedis
	if addr == "" {
		server, err := embedded.StartRedis()
		if err != nil {
			b.Fatal(err)
		}
		defer server.Close()
		addr = server.Addr()
	}
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2})
	defer func() { _ = client.Close() }()
	ctx := context.Background()
	pipe := client.Pipeline()
	for s := range shards.Users {
		pipe.Set(ctx, shards.EpochKey(s), fmt.Sprintf("%016x", 1), 0)
	}
	owners, out := make([]string, n), outOf(n)
	for i := range owners {
		owners[i] = fmt.Sprintf("user-%d", i)
		u := &push.User{Devices: []push.Device{{Platform: push.FCM, App: "shop", Token: userstest.Token(i), Hash: userstest.Hash(i), RegisteredAt: userstest.Epoch}}}
		pipe.Set(ctx, shards.UserKey(shards.UserShard(owners[i]), owners[i]), record.Encode(nil, u, 1), 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		b.Fatal(err)
	}
	nobody := make([]string, n)
	for i := range nobody {
		nobody[i] = userstest.Hash(i)
	}
	reader := users.NewReader(client, true)
	for _, bb := range []struct {
		name   string
		owners []string
	}{{"records", owners}, {"none", nobody}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := reader.Fetch(ctx, bb.owners, out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "users/s")
		})
	}
}

// meanwhile does something while a reader waits for the answers to a pipeline.
type meanwhile func()

func (meanwhile) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (m meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		m()
		return next(ctx, cmds)
	}
}

// Whether limiter states are read may change at any moment. An answer is read as what
// was asked.
func TestFetchEndsAsItBegan(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	shard := shards.UserShard("ada")
	for key, value := range map[string]string{shards.EpochKey(shard): "0000000000000001", shards.LimiterKey(shard, "ada"): "state"} {
		if err := client.Set(t.Context(), key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var reader *users.Reader
	client.AddHook(meanwhile(func() { reader.ReadLimiter(false) }))
	reader = users.NewReader(client, true)
	for _, want := range []string{"state", ""} {
		out := outOf(1)
		if err := reader.Fetch(t.Context(), []string{"ada"}, out); err != nil {
			t.Fatal(err)
		}
		if got := string(out[0].Limiter); got != want {
			t.Errorf("limiter state %q, want %q", got, want)
		}
	}
	client.AddHook(meanwhile(func() { reader.ReadLimiter(true) }))
	out := outOf(1)
	if err := reader.Fetch(t.Context(), []string{"ada"}, out); err != nil || out[0].Limiter != nil {
		t.Errorf("limiter state %q, %v, want none", out[0].Limiter, err)
	}
}
