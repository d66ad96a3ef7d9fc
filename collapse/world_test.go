package collapse_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Redis and a Latest on it.
type world struct {
	t      *testing.T
	ctx    context.Context
	redis  redis.UniversalClient
	latest *collapse.Latest
}

// eachRedis runs the test on an in-process Redis, and on a real one of its own if
// servers are wanted.
func eachRedis(t *testing.T, test func(*testing.T, *world)) {
	t.Run("embedded", func(t *testing.T) {
		server, err := embedded.StartRedis()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
		test(t, connect(t, server.Addr()))
	})
	t.Run("real", func(t *testing.T) { test(t, connect(t, localtest.Redis(t, local.RedisOptions{}).Addr())) })
}

// inMemory runs the test on a Redis without a socket, for virtual time.
func inMemory(t *testing.T, test func(*world)) {
	server, err := embedded.StartPipeRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{server.Addr()}, server.Dial
	w := open(t, o)
	defer func() { _ = w.redis.Close() }()
	test(w)
}

// connect makes a world at a server, or at a cluster of several.
func connect(t *testing.T, addrs ...string) *world {
	o := shards.DefaultOptions()
	o.Addrs, o.Cluster = addrs, len(addrs) > 1
	w := open(t, o)
	t.Cleanup(func() { _ = w.redis.Close() })
	return w
}

func open(t *testing.T, o shards.Options) *world {
	t.Helper()
	o.ReadTimeout = time.Minute // a busy machine is no failure
	client, err := shards.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: context.Background(), redis: client}
	settings := collapse.DefaultOptions()
	settings.Timeout = o.ReadTimeout
	w.with(settings)
	return w
}

// with replaces the Latest by one of these options.
func (w *world) with(o collapse.Options) {
	w.t.Helper()
	latest, err := collapse.New(w.redis, o)
	w.must(err)
	w.latest = latest
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// superseded asks about one item.
func (w *world) superseded(it *pipeline.Item) bool {
	w.t.Helper()
	out := []bool{true} // what was there before does not matter
	w.must(w.latest.Superseded(w.ctx, []*pipeline.Item{it}, out))
	return out[0]
}

// contest has the items, and another one under the collapse key of each, in flight from now on.
func (w *world) contest(items ...*pipeline.Item) {
	for _, it := range items {
		w.begin(it, &pipeline.Item{Message: it.Message})
	}
}

// begin has items in flight from now on.
func (w *world) begin(items ...*pipeline.Item) {
	for _, it := range items {
		batch := []pipeline.Item{*it}
		w.latest.Begin(batch)
		it.Place = batch[0].Place
	}
}

// end has them in flight no longer.
func (w *world) end(items ...*pipeline.Item) {
	for _, it := range items {
		if it.Place > 0 {
			w.latest.End([]uint32{it.Place})
		}
		it.Place = 0
	}
}
