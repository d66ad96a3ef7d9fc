package users_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// What the registry repeats of a device that holds must not compact away a
// later record that only cannot be read yet.
func TestRepeatsSpareTheQuarantine(t *testing.T) {
	future := `{"v":2,"token":"who knows"}`
	key := record.DeviceKey("ada", hash(1))
	virtual(t, func(w *world) {
		w.fill()
		w.run(options())
		w.agree()
		for _, r := range w.topic.Latest() {
			if r.Key == key { // an old copy, and then what only a newer fleet can read
				old := users.Record{Key: key, Value: []byte(strings.ReplaceAll(device(token(1)), "1999", "1990"))}
				w.must(w.topic.Append(w.ctx, []users.Record{old, {Key: key, Value: []byte(future)}}))
			}
		}
		w.settle()
		for _, r := range w.topic.Latest() {
			if r.Key == key && string(r.Value) != future {
				t.Errorf("compaction leaves %s of the part, want what came last", r.Value)
			}
		}
		if now, err := users.InQuarantine(w.ctx, w.redis); err != nil || !now[key] {
			t.Errorf("in quarantine: %v, %v; want %s", now, err, key)
		}
		if got := w.look("ada").Devices; len(got) != 2 {
			t.Errorf("ada has %d devices, want 2: what was there before holds", len(got))
		}
	})
}

// A repeat that was on its way when something came that cannot be read does
// not end its quarantine either.
func TestLateRepeatSparesTheQuarantine(t *testing.T) {
	key := record.DeviceKey("ada", hash(1))
	virtual(t, func(w *world) {
		w.fill()
		w.run(options())
		w.agree()
		var repeat users.Record
		for _, r := range w.topic.Latest() {
			if r.Key == key {
				repeat = r
			}
		}
		repeat.Repeats = true
		w.raw(key, `{"v":2}`)
		w.must(w.topic.Append(w.ctx, []users.Record{repeat}))
		w.settle()
		if now, err := users.InQuarantine(w.ctx, w.redis); err != nil || !now[key] {
			t.Errorf("in quarantine: %v, %v; want %s", now, err, key)
		}
	})
}

// A case that only a newer registry knows waits for it: those of other shards,
// and of its own, are settled.
func TestUnknownCaseStopsNobody(t *testing.T) {
	virtual(t, func(w *world) {
		reg := prometheus.NewRegistry()
		w.metrics = users.NewMetrics(reg)
		w.run(options())
		w.agree()
		tok := 0
		home := func() int { return shards.TokenShard(hash(tok)) * (shards.Users / shards.Filters) }
		for ; home() < 8; tok++ {
		}
		for _, s := range []int{3, home()} {
			w.must(w.redis.SAdd(w.ctx, "t:{"+shards.UserTag(s)+"}:open", "a:something", "e:when:something", "q:who").Err())
		}
		w.register("ada", tok, 10)
		w.register("cy", tok, 20)
		time.Sleep(20 * options().CheckInterval)
		if got := w.look("ada").Devices; len(got) != 0 {
			t.Errorf("ada has the token that is cy's by now: %+v", got)
		}
		if got := w.redis.SMembers(w.ctx, "t:{"+shards.UserTag(3)+"}:open").Val(); len(got) != 3 {
			t.Errorf("the open cases of shard 3 are %q, want those that nobody knows", got)
		}
		if n := w.figure(reg, "push_registry_errors_total"); n < 3 {
			t.Errorf("%v errors were counted, with three cases that nobody knows in each of two shards", n)
		}
	})
}

// Of two registrations of one moment the later record counts, as compaction
// would have it.
func TestTheLaterOfTwoRegistrationsOfOneMomentCounts(t *testing.T) {
	virtual(t, func(w *world) {
		w.fill()
		w.run(options())
		w.agree()
		d := w.look("ada").Devices[0]
		d.Locale = "cy"
		_, err := w.client.RegisterDevice(w.ctx, "ada", d)
		w.must(err)
		w.agree()
		if got := w.look("ada").Devices[0].Locale; got != "cy" {
			t.Errorf("the locale is %q, want that of the later record", got)
		}
	})
}
