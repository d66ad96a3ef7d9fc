//go:build linux

package latency

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/bench/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All are sent, each due a pause after the one before, also while none has returned.
func TestEvery(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const pause, enough = time.Millisecond, 20
	var mu sync.Mutex
	due := map[int]time.Time{} // guarded by mu
	Every(ctx, pause, func(n int, at time.Time) {
		mu.Lock()
		due[n] = at
		if len(due) == enough {
			stop()
		}
		mu.Unlock()
		<-ctx.Done()
	})
	if len(due) < enough {
		t.Fatalf("%d were sent", len(due))
	}
	for n := range len(due) {
		if at, is := due[n]; !is || at.Sub(due[0]) != time.Duration(n)*pause {
			t.Errorf("number %d was due at %v, the first at %v", n, at, due[0])
		}
	}
}

func TestWaits(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	noted := func(id string, ms int) servers.Noted {
		return servers.Noted{Pair: servers.Pair{ID: id, Device: "d"}, At: at(ms)}
	}
	list := []Sent{{"early", 0, at(10)}, {"a", 1, at(100)}, {"b", 2, at(200)}, {"late", 3, at(900)}}
	log := []servers.Noted{noted("b", 290), noted("backlog", 110), noted("a", 150), noted("b", 230)}
	got, missing := Waits(list, log, at(100), at(800))
	if len(missing) > 0 || len(got) != 2 || got[0].Took != 50*time.Millisecond || got[1].Took != 30*time.Millisecond {
		t.Errorf("got %v, %v: want the first acceptance of each in that time", got, missing)
	}
	if _, missing := Waits(list, log, at(0), at(800)); len(missing) != 1 || missing[0].ID != "early" {
		t.Errorf("missing are %v", missing)
	}
}

func TestQuantile(t *testing.T) {
	var hundred []Wait
	for i := range 100 {
		hundred = append(hundred, Wait{Took: time.Duration(100-i) * time.Millisecond})
	}
	for _, tt := range []struct {
		why  string
		list []Wait
		part float64
		want float64
	}{
		{"99 of 100", hundred, 0.99, 99},
		{"half of 100", hundred, 0.5, 50},
		{"all", hundred, 1, 100},
		{"of one", hundred[:1], 0.99, 100},
		{"of 50, the worst", hundred[50:], 0.99, 50},
	} {
		if got := Quantile(tt.list, tt.part); got == nil || *got != tt.want {
			t.Errorf("%s: %v, want %v", tt.why, got, tt.want)
		}
	}
	if got := Quantile(nil, 0.5); got != nil {
		t.Errorf("of none: %v", *got)
	}
}
