package dedupe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// bounded opens a client of a Redis of its own, whose memory the test bounds.
func bounded(t *testing.T) redis.UniversalClient {
	t.Helper()
	return shardstest.Connect(t, localtest.Redis(t, local.RedisOptions{}).Addr())
}

// A Redis without memory takes no ids: Add says so, so their offsets stay. What was
// added before stays known, and new ids stay new: out of memory is not "seen". With
// room again they are added.
func TestARedisWithoutRoomTakesNoIDs(t *testing.T) {
	const n = 2000
	client := bounded(t)
	f, err := New(client, small())
	must(t, err)
	must(t, f.DeclareNew(t.Context()))
	before, during := names(n, "before"), names(n, "during")
	add(t, f, before...)
	must(t, client.ConfigSet(t.Context(), "maxmemory", "1mb").Err()) // noeviction, as it has to be
	if err := f.Add(t.Context(), during); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("added: %v", err)
	}
	for who, f := range map[string]*Filter{"the worker": f, "its heir": another(t, f)} {
		if got := check(t, f, before...); got != n {
			t.Errorf("to %s %d of %d ids are maybe that were added before", who, got, n)
		}
		if got := check(t, f, during...); got > n/50 {
			t.Errorf("to %s %d of %d new ids are maybe", who, got, n)
		}
	}
	must(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	must(t, f.Add(t.Context(), during))
	if got := check(t, another(t, f), during...); got != n {
		t.Errorf("with room again %d of %d are known", got, n)
	}
}

// Workers do not start on a Redis that may evict, but its policy can be set while they
// run. Whichever filters are evicted, no id that was added is taken for new.
func TestEvictedFiltersSayMaybe(t *testing.T) {
	const n = 2000
	client := bounded(t)
	f, err := New(client, small())
	must(t, err)
	must(t, f.DeclareNew(t.Context()))
	ids := names(n, "id")
	add(t, f, ids...)
	size := func() int64 {
		t.Helper()
		keys, err := client.DBSize(t.Context()).Result()
		must(t, err)
		return keys
	}
	whole := size()
	must(t, client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	for i, share := 0, 0.995; ; i++ {
		if i == 100 {
			t.Fatal("nothing was evicted")
		}
		info, err := client.Info(t.Context(), "memory").Result()
		must(t, err)
		var used int64
		_, after, _ := strings.Cut(info, "used_memory:")
		_, err = fmt.Sscan(after, &used)
		must(t, err)
		must(t, client.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(int64(float64(used)*share))).Err())
		_ = client.Get(t.Context(), "any").Err() // evicts, and there is none
		share -= 0.001
		if left := size(); left < whole {
			t.Logf("%d of %d keys are left", left, whole)
			break
		}
	}
	must(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for who, f := range map[string]*Filter{"the worker": f, "its heir": another(t, f)} {
		if got := check(t, f, ids...); got != n {
			t.Errorf("to %s %d of %d ids are new that were added", who, n-got, n)
		}
	}
	must(t, f.Prepare(t.Context()))
	add(t, f, ids...)
	if got := check(t, another(t, f), ids...); got != n {
		t.Errorf("%d of %d are known when the filters are made anew", got, n)
	}
}

// A key of another type in a filter's place answers no to everything. Without the
// sentinel that is "maybe"; and what cannot be added is an error.
func TestAKeyThatIsNoFilter(t *testing.T) {
	client := bounded(t)
	f, err := New(client, small())
	must(t, err)
	must(t, f.DeclareNew(t.Context()))
	ids := names(2000, "id")
	add(t, f, ids...)
	const k = 7
	of := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return shards.FilterShard(id) != k })
	must(t, client.Set(t.Context(), f.window(f.number(f.now())).keys[k], "something", 0).Err())
	if got := check(t, f, of...); got != len(of) || got == 0 {
		t.Errorf("%d of %d ids are maybe that were added", got, len(of))
	}
	if err := f.Add(t.Context(), of); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("added: %v", err)
	}
}
