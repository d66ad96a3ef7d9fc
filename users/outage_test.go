package users_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
)

// opener makes clients of a real server or cluster.
func opener(t *testing.T, addrs ...string) func() redis.UniversalClient {
	return func() redis.UniversalClient {
		o := shards.DefaultOptions()
		o.Addrs, o.Cluster = addrs, len(addrs) > 1
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patience, patience, patience
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}

// witness reads ada all the time, as a worker does.
type witness struct {
	errors  atomic.Int64
	answers atomic.Int64
	wrong   atomic.Int64 // answers without her two devices
}

func (w *world) witness() (seen *witness, stop func()) {
	seen = new(witness)
	ctx, cancel := context.WithCancel(w.ctx)
	client := w.open()
	var reading sync.WaitGroup
	reading.Go(func() {
		reader := users.NewReader(client, true)
		for ctx.Err() == nil {
			u := new(push.User)
			switch err := reader.Fetch(ctx, []string{"ada"}, []*push.User{u}); {
			case err != nil:
				seen.errors.Add(1)
			case len(u.Devices) != 2:
				seen.wrong.Add(1)
			default:
				seen.answers.Add(1)
			}
			time.Sleep(time.Millisecond)
		}
	})
	return seen, func() {
		cancel()
		reading.Wait()
		_ = client.Close()
	}
}

// Redis restarts empty, is flushed, and fails over to a copy without the
// latest writes, all under a registry and a reader at work. Nobody touches
// them: the registry fills it again, and the reader says "not now" until then,
// never "no device".
func TestRedisForgetsUnderway(t *testing.T) {
	server := localtest.Redis(t, local.RedisOptions{})
	inWorld(t, func(w *world) {
		w.fill()
		w.run(options())
		w.agree()
		seen, stop := w.witness()
		defer stop()
		ctx, cancel := context.WithTimeout(w.ctx, 5*patience)
		defer cancel()
		restart := func() {
			w.must(server.Kill())
			w.must(server.Restart(ctx))
		}
		for _, event := range []struct {
			name string
			do   func()
			// refused: the reader must have noticed. A copy that lacks the latest
			// writes answers at once, with what it has.
			refused bool
		}{
			{"restarted empty", restart, true},
			{"flushed", func() { w.must(server.Wipe(ctx)) }, true},
			{"failed over to a copy without the latest writes", func() {
				w.must(w.redis.Save(ctx).Err()) // what the next start finds
				w.optOut("ada", "promo", "news", "lost")
				w.register("cy", 9, 50)
				w.agree()
				restart()
			}, false},
			{"failed over to a copy of another time, half built", func() {
				w.must(server.Wipe(ctx))
				w.must(w.redis.Save(ctx).Err())
				restart()
			}, true},
		} {
			errors, answers := seen.errors.Load(), seen.answers.Load()
			event.do()
			w.agree()
			for began := time.Now(); seen.answers.Load() == answers; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > patience {
					t.Fatalf("%s: the reader has not been answered since", event.name)
				}
			}
			if event.refused && seen.errors.Load() == errors {
				t.Errorf("%s: the reader was never told to wait", event.name)
			}
			if n := seen.wrong.Load(); n > 0 {
				t.Fatalf("%s: the reader was told %d times that ada has not her devices", event.name, n)
			}
		}
		if got := w.fetch("ada")["ada"].Preferences.Types; len(got) != 3 {
			t.Errorf("ada's opt-outs are %q, want the three of the lost write", got)
		}
	}, opener(t, server.Addr()))
}

// On a cluster every script, pipeline and MGET stays in its slots, and a node
// that forgets is filled again while the others go on.
func TestOnACluster(t *testing.T) {
	cluster := localtest.RedisCluster(t, local.RedisOptions{})
	inWorld(t, func(w *world) {
		w.fill()
		w.register("eve", 1, 40) // moves from ada
		w.run(options())
		w.agree()
		ctx, cancel := context.WithTimeout(w.ctx, 5*patience)
		defer cancel()
		for _, node := range cluster.Nodes {
			w.must(node.Wipe(ctx))
			w.optOut("dee", "promo")
			time.Sleep(2 * options().CheckInterval)
			w.agree()
		}
	}, opener(t, cluster.Addrs()...))
}
