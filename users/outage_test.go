package users_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// witness reads ada all the time, as a worker does.
type witness struct {
	errors  atomic.Int64
	answers atomic.Int64
	wrong   atomic.Int64 // answers without her two devices
}

func (w *world) witness() (seen *witness, stop func()) {
	seen = new(witness)
	ctx, cancel := context.WithCancel(w.Ctx)
	client := w.Open()
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
	userstest.In(t, in(func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		seen, stop := w.witness()
		defer stop()
		ctx, cancel := context.WithTimeout(w.Ctx, 5*userstest.Patience)
		defer cancel()
		restart := func() {
			w.Must(server.Kill())
			w.Must(server.Restart(ctx))
		}
		for _, event := range []struct {
			name string
			do   func()
			// refused: the reader must have noticed. A copy that lacks the latest
			// writes answers at once, with what it has.
			refused bool
		}{
			{"restarted empty", restart, true},
			{"flushed", func() { w.Must(server.Wipe(ctx)) }, true},
			{"failed over to a copy without the latest writes", func() {
				w.Must(w.Redis.Save(ctx).Err()) // what the next start finds
				w.OptOut("ada", "promo", "news", "lost")
				w.Register("cy", 9, 50)
				w.agree()
				restart()
			}, false},
			{"failed over to a copy of another time, half built", func() {
				w.Must(server.Wipe(ctx))
				w.Must(w.Redis.Save(ctx).Err())
				restart()
			}, true},
		} {
			errors, answers := seen.errors.Load(), seen.answers.Load()
			event.do()
			w.agree()
			for began := time.Now(); seen.answers.Load() == answers; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > userstest.Patience {
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
		if got := w.Fetch("ada")["ada"].Preferences.Types; len(got) != 3 {
			t.Errorf("ada's opt-outs are %q, want the three of the lost write", got)
		}
	}), userstest.Opener(t, server.Addr()))
}

// On a cluster every script, pipeline and MGET stays in its slots, and a node
// that forgets is filled again while the others go on.
func TestOnACluster(t *testing.T) {
	cluster := localtest.RedisCluster(t, local.RedisOptions{})
	userstest.In(t, in(func(w *world) {
		w.fill()
		w.Register("eve", 1, 40) // moves from ada
		w.Run(userstest.RegistryOptions())
		w.agree()
		ctx, cancel := context.WithTimeout(w.Ctx, 5*userstest.Patience)
		defer cancel()
		for _, node := range cluster.Nodes {
			w.Must(node.Wipe(ctx))
			w.OptOut("dee", "promo")
			time.Sleep(2 * userstest.RegistryOptions().CheckInterval)
			w.agree()
		}
	}), userstest.Opener(t, cluster.Addrs()...))
}
