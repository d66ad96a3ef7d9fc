package dedupe

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// behind opens a client of a pair, whichever server is the master.
func behind(t *testing.T, pair *local.RedisPair) redis.UniversalClient {
	t.Helper()
	o := shards.DefaultOptions()
	o.Addrs, o.Dialer = []string{"pair:6379"}, pair.Dial
	return shardstest.Open(t, o)
}

// TestFailOverForgetsTheLastAddsOnly: Redis fails over to a replica that lags.
// Ids that the replica had are still known. Ids added since then are forgotten,
// which nothing can detect, or maybe. Everything else that the replica lacks
// (filters, births, marks) makes answers maybe. And the worker continues: ids
// that are added now are known.
func TestFailOverForgetsTheLastAddsOnly(t *testing.T) {
	const n = 2000
	young := time.Now().Add(slack + time.Hour) // younger than every birth of this test
	for _, c := range []struct {
		name          string
		before, since func(t *testing.T, f *Filter) // what happens besides the adds, before and after the replica falls behind
		forgets       bool                          // ids added since then are no longer known
		maybe         bool                          // all new ids are maybe
	}{
		{"filters that are whole", func(t *testing.T, f *Filter) { must(t, f.DeclareNew(t.Context())) }, nil, true, false},
		{"filters with a birth", func(t *testing.T, f *Filter) { must(t, f.Prepare(t.Context())) }, nil, true, false},
		{"filters that the replica never had", nil, func(t *testing.T, f *Filter) { must(t, f.Prepare(t.Context())) }, false, true},
		{"filters that were wiped and made again", func(t *testing.T, f *Filter) { must(t, f.DeclareNew(t.Context())) },
			func(t *testing.T, f *Filter) {
				must(t, f.client.FlushAll(t.Context()).Err())
				must(t, f.Prepare(t.Context()))
			}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := localtest.RedisPair(t)
			f, err := New(behind(t, pair), DefaultOptions())
			must(t, err)
			old, latest, later, fresh := uuids(young, n, "old"), uuids(young, n, "new"+c.name), uuids(young, n, "a"), uuids(young, n, "ab")
			if c.before != nil {
				c.before(t, f)
				add(t, f, old...)
			}
			must(t, pair.Part(t.Context()))
			if c.since != nil {
				c.since(t, f)
			}
			add(t, f, latest...)
			must(t, pair.FailOver())

			heir := another(t, f)
			if !c.maybe { // it would create what is missing
				must(t, heir.Prepare(t.Context()))
			}
			for who, f := range map[string]*Filter{"the worker": f, "its heir": heir} {
				if got := check(t, f, old...); got != n {
					t.Errorf("%s knows %d of %d ids that the replica had", who, got, n)
				}
				if got := check(t, f, latest...); got > n/100 && c.forgets || got != n && !c.forgets {
					t.Errorf("to %s %d of %d of the latest ids are maybe; forgotten: %v", who, got, n, c.forgets)
				}
				if got := check(t, f, fresh...); got > n/100 && !c.maybe || got != n && c.maybe {
					t.Errorf("to %s %d of %d new ids are maybe; all of them: %v", who, got, n, c.maybe)
				}
			}
			must(t, f.Prepare(t.Context()))
			add(t, f, later...)
			if got := check(t, another(t, f), later...); got != n {
				t.Errorf("%d of %d ids that were added after it are known", got, n)
			}
		})
	}
}

// TestFailOverLosesMarks: filters that became full after the replica fell
// behind have room on the replica, and no mark. The worker that found them full
// still answers maybe to everything, and writes the marks again with its next
// adds, so that the other workers do so too.
func TestFailOverLosesMarks(t *testing.T) {
	pair := localtest.RedisPair(t)
	f, err := New(behind(t, pair), small())
	must(t, err)
	must(t, f.DeclareNew(t.Context()))
	must(t, pair.Part(t.Context()))
	much, fresh := names(40_000, "much"), names(2000, "fresh")
	add(t, f, much...)
	must(t, pair.FailOver())
	if got := check(t, f, fresh...); got != len(fresh) {
		t.Errorf("to who found them full %d of %d are maybe, want all", got, len(fresh))
	}
	heir := another(t, f)
	if got := check(t, heir, fresh...); got > len(fresh)/100 {
		t.Errorf("to its heir %d of %d are maybe: the marks are not lost, so this test tests nothing", got, len(fresh))
	}
	add(t, f, names(2000, "next")...)
	if got := check(t, heir, fresh...); got != len(fresh) {
		t.Errorf("once there are adds, to its heir %d of %d are maybe, want all", got, len(fresh))
	}
}
