package limits

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards/shardstest"
	"github.com/pushfleet/pushfleet/status"
)

// cassandra is a session in a keyspace of its own on the real server.
func cassandra(t testing.TB) *status.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	o := status.Options{Hosts: []string{localtest.Require(t).Cassandra}, Keyspace: "t" + strings.ReplaceAll(uuid.NewString(), "-", ""),
		Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	if _, err := status.ApplySchema(ctx, o, status.SchemaOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := status.OpenSession(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := NewDeviceLog(s, 1).Check(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// What holds in memory holds on a real server: both backends agree, rows have their
// time to live, and nothing stands twice.
func TestALogOnCassandra(t *testing.T) {
	s := cassandra(t)
	west, east := time.FixedZone("west", -8*3600), time.FixedZone("east", 9*3600)
	rules := []Rule{deviceDay(4), deviceMinute(2)}
	judge, l := alone(t, rules...), logging(t, nil, s, rules...)
	random := rand.New(rand.NewPCG(3, 1))
	at, refused := start, 0
	for step := range 150 {
		at = at.Add(time.Duration(random.IntN(90)) * time.Second)
		if step%25 == 24 {
			at = at.Add(5 * time.Hour)
		}
		one := Request{Owner: "u", ID: fmt.Sprint(step / 2 * 2), Type: []string{"a", "b"}[random.IntN(2)], App: "shop",
			Priority: 3, At: at, Zone: []*time.Location{west, east}[step/40%2], Devices: []Device{{Hash: 1}}}
		other := one
		other.Devices = slices.Clone(one.Devices)
		judge(&one)
		decide(t, l, &other)
		if one.Decision != other.Decision {
			t.Fatalf("step %d: the state says %+v, the log %+v", step, one.Decision, other.Decision)
		}
		if !one.Allowed {
			refused++
		}
	}
	if refused < 10 || refused > 140 {
		t.Errorf("%d of 150 refused: it shows nothing", refused)
	}
	for table, most := range map[string]time.Duration{"device_limit_days": daysTTL, "device_limit_times": timesTTL} {
		var ttl, rows int
		err := s.Query(t.Context(), "SELECT TTL(about) FROM "+table, nil, []any{&ttl}, func() {
			if rows++; ttl <= 0 || ttl > int(most.Seconds()) {
				t.Errorf("%s: a row lives for %d seconds, want at most %v", table, ttl, most)
			}
		})
		if err != nil || rows == 0 {
			t.Errorf("%s: %d rows, %v", table, rows, err)
		}
	}
}

// 32 callers at once on one device: the limit is reached, and passed by at most
// the other callers. What was allowed stays allowed.
func TestOvershootIsBounded(t *testing.T) {
	s := cassandra(t)
	const callers, each, limit = 32, 6, 5
	var mu sync.Mutex
	var allowed []string
	var wg sync.WaitGroup
	for c := range callers {
		l := logging(t, nil, s, deviceDay(limit))
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprint(c, "-", i)
				d, err := l.Allow(t.Context(), "u", "device", "news", id)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					mu.Lock()
					allowed = append(allowed, id)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d were allowed, of a limit of %d, by %d callers at once", len(allowed), callers*each, limit, callers)
	if n := len(allowed); n < limit || n > limit+callers-1 {
		t.Errorf("%d were allowed, want %d to %d", n, limit, limit+callers-1)
	}
	l := logging(t, nil, s, deviceDay(limit))
	for _, id := range allowed {
		if d, err := l.Allow(t.Context(), "u", "device", "news", id); err != nil || !d.Allowed {
			t.Errorf("%s was allowed before: %+v, %v", id, d, err)
		}
	}
	if d, err := l.Allow(t.Context(), "u", "device", "news", "later"); err != nil || d.Allowed {
		t.Errorf("over the limit: %+v, %v", d, err)
	}
}

func TestALogSurvivesAWipeOfRedis(t *testing.T) {
	client := shardstest.Start(t)
	l := logging(t, client, cassandra(t), deviceDay(1), perUser(1, time.Hour))
	ask := func(id string, device uint32) string {
		r := to(id, "x", 0, device)
		r.State = stored(t, client, "u")
		decide(t, l, r)
		return outcome(r)
	}
	got := []string{ask("a", 1), ask("b", 2)}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	got = append(got, ask("c", 1), ask("a", 1), ask("b", 2))
	want := []string{"ok", "no all", "no device 1:device", "ok", "no all"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q: the device's day is not forgotten, the user's hour is", got, want)
	}
}

func TestForgetDevicesOnCassandra(t *testing.T) { checkForget(t, cassandra(t), nil) }
