package rates

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// At a small rate nothing can be kept for urgent sends. One is granted at once all the same,
// whatever the backlog of two other workers, if the last one is some sends ago; the rate is
// kept, and used.
func TestAnUrgentSendIsNotBehindABacklog(t *testing.T) {
	for _, rate := range []float64{1, 3, 10, 13} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			redis, err := embedded.StartRedis()
			if err != nil {
				t.Fatal(err)
			}
			defer redis.Close()
			client := shardstest.Connect(t, redis.Addr())
			clock := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
			granted := 0
			exchange := func(member string, a ask) grant {
				t.Helper()
				redis.Mini.SetTime(clock)
				a.known, a.demand = State{Epoch: 1, Rate: rate}, a.want
				s := &store{client: client, key: "r:urgent", member: member, base: rate}
				g, err := s.exchange(context.Background(), &a)
				if err != nil {
					t.Fatal(err)
				}
				granted += g.sends + g.urgent
				return g
			}
			const rounds = 600 // of 100 ms
			every := max(int(40/rate), 4)
			for i := range rounds {
				for _, member := range []string{"a", "b"} {
					exchange(member, ask{want: 100})
				}
				if i > 0 && i%every == 0 {
					g := exchange("c", ask{urgent: 1})
					if g.urgent+g.sends != 1 || max(g.urgentAt, g.from) > 200*time.Millisecond {
						t.Errorf("round %d: %+v, want one at once", i, g)
					}
				}
				clock = clock.Add(100 * time.Millisecond)
			}
			all := rate * rounds / 10
			if most := all + rate*max(ahead.Seconds(), 1/rate) + 2; float64(granted) > most || float64(granted) < 0.88*all { // asks come each 100 ms
				t.Errorf("%d granted, want from 88 %% of %v to %v", granted, all, most)
			}
			// A clock that is set back stops nobody for long.
			clock = clock.Add(-time.Hour)
			exchange("a", ask{want: 1})
			clock = clock.Add(max(3*ahead, time.Duration(3*float64(time.Second)/rate)))
			if g := exchange("c", ask{urgent: 1}); g.urgent+g.sends != 1 {
				t.Errorf("after the clock was set back: %+v", g)
			}
		})
	}
}
