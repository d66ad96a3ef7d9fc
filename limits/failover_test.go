package limits

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// TestFailOverGivesBackTheLatestSpends: Redis fails over to a replica that
// lags. A user may get again what was spent since then, and no more; an id that
// the replica has stays allowed.
func TestFailOverGivesBackTheLatestSpends(t *testing.T) {
	pair := localtest.RedisPair(t)
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{"pair:6379"}, pair.Dial
	client := shardstest.Open(t, o)
	l := limiter(t, client, perUser(5, time.Hour))
	allowed := func(id string) bool {
		t.Helper()
		r := &Request{Owner: "u1", ID: id, Type: "order", At: start, State: stored(t, client, "u1")}
		if err := l.Decide(t.Context(), []*Request{r}); err != nil {
			t.Fatal(err)
		}
		return r.Allowed
	}
	count := func(ids ...string) (n int) {
		for _, id := range ids {
			if allowed(id) {
				n++
			}
		}
		return n
	}
	if n := count("a", "b", "c"); n != 3 {
		t.Fatalf("%d of 3 allowed", n)
	}
	if err := pair.Part(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count("d", "e", "f"); n != 2 {
		t.Fatalf("%d allowed of the last 2", n)
	}
	if err := pair.FailOver(); err != nil {
		t.Fatal(err)
	}
	if n := count("a", "b", "c"); n != 3 {
		t.Errorf("%d of 3 that the replica knows are allowed again", n)
	}
	if n := count("g", "h", "i", "j"); n != 2 {
		t.Errorf("%d more are allowed, want the 2 that were spent since", n)
	}
}
