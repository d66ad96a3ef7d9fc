package pauses_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fleet = "pauses.test"

var (
	key      = shards.PausesKey(fleet)
	fcmShop  = push.Route{Platform: push.FCM, App: "shop"}
	apnsShop = push.Route{Platform: push.APNS, App: "shop", Environment: push.Sandbox}
)

// onEach runs a test on the embedded Redis, and on a real one where there is
// one.
func onEach(t *testing.T, test func(t *testing.T, client shards.Client)) {
	t.Run("embedded", func(t *testing.T) {
		test(t, shardstest.Start(t))
	})
	t.Run("real", func(t *testing.T) {
		client := shardstest.Connect(t, localtest.Require(t).Redis)
		t.Cleanup(func() {
			client.Del(context.Background(), key)
			client.Del(context.Background(), shards.QuarantineKey(fleet))
		})
		if err := client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		test(t, client)
	})
}

func store(t *testing.T, client shards.Client, log *bytes.Buffer) *pauses.Store {
	t.Helper()
	s, err := pauses.New(client, pauses.Options{Fleet: fleet, Longest: time.Hour, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// told reads the pauses, in order and with their rests rounded to seconds.
func told(t *testing.T, s *pauses.Store) []gates.Pause {
	t.Helper()
	ps, err := s.Told(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range ps {
		ps[i].Left = ps[i].Left.Round(30 * time.Second) // a slow machine is no failure
	}
	slices.SortFunc(ps, func(a, b gates.Pause) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return ps
}

func want(t *testing.T, got []gates.Pause, want ...gates.Pause) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

func tell(t *testing.T, s *pauses.Store, ps ...gates.Pause) {
	t.Helper()
	if err := s.Tell(t.Context(), ps); err != nil {
		t.Fatal(err)
	}
}

func TestPausesAreTold(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		var log bytes.Buffer
		here, there := store(t, client, &log), store(t, client, &log)
		want(t, told(t, there))
		asked := gates.Pause{Route: fcmShop, Reason: gates.PauseAsked, Left: 10 * time.Minute}
		halted := gates.Pause{Route: apnsShop, Reason: gates.PauseHalted, Left: 5 * time.Minute}
		tell(t, here, asked, halted)
		want(t, told(t, there), halted, asked)

		shorter, longer := asked, asked
		shorter.Left, longer.Left = 2*time.Minute, 20*time.Minute
		tell(t, there, shorter)
		want(t, told(t, here), halted, asked)
		tell(t, there, longer, gates.Pause{Route: apnsShop, Reason: gates.PauseAsked, Left: 1000 * time.Hour})
		want(t, told(t, here), halted, gates.Pause{Route: apnsShop, Reason: gates.PauseAsked, Left: time.Hour}, longer)

		if ttl, err := client.PTTL(t.Context(), key).Result(); err != nil || ttl <= 50*time.Minute || ttl > time.Hour {
			t.Errorf("the key expires in %v, %v: want an hour after it was written", ttl, err)
		}
		if log.Len() > 0 {
			t.Errorf("log:\n%s", &log)
		}
	})
}

// A pause of a moment is over by itself, in the answer and in the set.
func TestPausesEnd(t *testing.T) {
	onEach(t, func(t *testing.T, client shards.Client) {
		s := store(t, client, new(bytes.Buffer))
		tell(t, s, gates.Pause{Route: apnsShop, Reason: gates.PauseAsked, Left: time.Millisecond})
		deadline := time.Now().Add(15 * time.Second)
		for ps := told(t, s); len(ps) > 0; ps = told(t, s) {
			if time.Now().After(deadline) {
				t.Fatalf("a pause of a millisecond still lasts: %v", ps)
			}
		}
		tell(t, s, gates.Pause{Route: fcmShop, Reason: gates.PauseAsked, Left: time.Hour})
		if members, err := client.ZRange(t.Context(), key, 0, -1).Result(); err != nil || !slices.Equal(members, []string{"retry_after fcm/shop"}) {
			t.Errorf("the set holds %q, %v: want only what lasts", members, err)
		}
	})
}

// Whatever stands there: it stops no route, is no error, and hides no pause.
func TestGarbageStopsNothing(t *testing.T) {
	later := func(d time.Duration) float64 { return float64(time.Now().Add(d).UnixMilli()) }
	for _, row := range []struct {
		why   string
		write func(ctx context.Context, c shards.Client) error
	}{
		{"no sorted set", func(ctx context.Context, c shards.Client) error { return c.Set(ctx, key, "x", 0).Err() }},
		{"for ever", add(1e300, "retry_after fcm/shop")},
		{"infinitely", func(ctx context.Context, c shards.Client) error {
			return c.Do(ctx, "ZADD", key, "+inf", "retry_after fcm/shop").Err()
		}},
		{"two hours, where an hour is the most", add(later(2*time.Hour), "retry_after fcm/shop")},
		{"no reason", add(later(time.Minute), "fcm/shop")},
		{"a reason of a later version", add(later(time.Minute), "shed fcm/shop")},
		{"no route", add(later(time.Minute), "retry_after ")},
		{"a platform of a later version", add(later(time.Minute), "retry_after wns/shop")},
		{"no app", add(later(time.Minute), "halt apns//production")},
		{"bytes", add(later(time.Minute), "\x00\xff\n"+strings.Repeat("a", 1000))},
	} {
		t.Run(row.why, func(t *testing.T) {
			onEach(t, func(t *testing.T, client shards.Client) {
				var log bytes.Buffer
				s := store(t, client, &log)
				if err := row.write(t.Context(), client); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					want(t, told(t, s))
				}
				if n := strings.Count(log.String(), "ignoring"); n != 1 || log.Len() > 500 {
					t.Errorf("told %d times in the log, want once and in short:\n%s", n, &log)
				}
				asked := gates.Pause{Route: fcmShop, Reason: gates.PauseAsked, Left: 10 * time.Minute}
				tell(t, s, asked)
				want(t, told(t, s), asked)
			})
		})
	}
}

func add(score float64, member string) func(context.Context, shards.Client) error {
	return func(ctx context.Context, c shards.Client) error {
		return c.ZAdd(ctx, key, redis.Z{Score: score, Member: member}).Err()
	}
}

func TestAStoreThatIsAwayIsAnError(t *testing.T) {
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	s := store(t, shardstest.Connect(t, server.Addr()), new(bytes.Buffer))
	server.Close()
	if _, err := s.Told(t.Context()); err == nil {
		t.Error("reading a Redis that is away: no error")
	}
	if err := s.Tell(t.Context(), []gates.Pause{{Route: fcmShop, Reason: gates.PauseAsked, Left: time.Minute}}); err == nil {
		t.Error("writing to a Redis that is away: no error")
	}
	if err := s.Tell(t.Context(), nil); err != nil {
		t.Errorf("telling nothing: %v", err)
	}
}

func TestOptions(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, o := range []pauses.Options{{Fleet: fleet, Log: log}, {Fleet: fleet, Longest: time.Hour}, {Fleet: fleet, Longest: time.Millisecond, Log: log}, {Longest: time.Hour, Log: log}} {
		if _, err := pauses.New(nil, o); err == nil {
			t.Errorf("%+v: accepted", o)
		}
	}
}
