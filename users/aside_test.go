package users_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// What the registry repeats of a device that holds must not compact away a
// later record that only cannot be read yet.
func TestRepeatsSpareTheQuarantine(t *testing.T) {
	future := `{"v":2,"token":"who knows"}`
	key := record.DeviceKey("ada", userstest.Hash(1))
	virtual(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		for _, r := range w.Topic.Latest() {
			if r.Key == key { // an old copy, and then what only a newer fleet can read
				old := users.Record{Key: key, Value: []byte(strings.ReplaceAll(device(userstest.Token(1)), "1999", "1990"))}
				w.Must(w.Topic.Append(w.Ctx, []users.Record{old, {Key: key, Value: []byte(future)}}))
			}
		}
		w.Settle()
		for _, r := range w.Topic.Latest() {
			if r.Key == key && string(r.Value) != future {
				t.Errorf("compaction leaves %s of the part, want what came last", r.Value)
			}
		}
		if now, err := users.InQuarantine(w.Ctx, w.Redis); err != nil || !now[key] {
			t.Errorf("in quarantine: %v, %v; want %s", now, err, key)
		}
		if got := w.Look("ada").Devices; len(got) != 2 {
			t.Errorf("ada has %d devices, want 2: what was there before holds", len(got))
		}
	})
}

// A repeat that was on its way when something came that cannot be read does
// not end its quarantine either.
func TestLateRepeatSparesTheQuarantine(t *testing.T) {
	key := record.DeviceKey("ada", userstest.Hash(1))
	virtual(t, func(w *world) {
		w.fill()
		w.Run(userstest.RegistryOptions())
		w.agree()
		var repeat users.Record
		for _, r := range w.Topic.Latest() {
			if r.Key == key {
				repeat = r
			}
		}
		repeat.Repeats = true
		w.Raw(key, `{"v":2}`)
		w.Must(w.Topic.Append(w.Ctx, []users.Record{repeat}))
		w.Settle()
		if now, err := users.InQuarantine(w.Ctx, w.Redis); err != nil || !now[key] {
			t.Errorf("in quarantine: %v, %v; want %s", now, err, key)
		}
	})
}

// A case that only a newer registry knows waits for it: those of other shards,
// and of its own, are settled.
func TestUnknownCaseStopsNobody(t *testing.T) {
	virtual(t, func(w *world) {
		reg := prometheus.NewRegistry()
		w.Metrics = users.NewMetrics(reg)
		w.Run(userstest.RegistryOptions())
		w.agree()
		tok := 0
		home := func() int { return shards.TokenShard(userstest.Hash(tok)) * (shards.Users / shards.Filters) }
		for ; home() < 8; tok++ {
		}
		for _, s := range []int{3, home()} {
			w.Must(w.Redis.SAdd(w.Ctx, "t:{"+shards.UserTag(s)+"}:open", "a:something", "e:when:something", "q:who").Err())
		}
		w.Register("ada", tok, 10)
		w.Register("cy", tok, 20)
		time.Sleep(20 * userstest.RegistryOptions().CheckInterval)
		if got := w.Look("ada").Devices; len(got) != 0 {
			t.Errorf("ada has the token that is cy's by now: %+v", got)
		}
		if got := w.Redis.SMembers(w.Ctx, "t:{"+shards.UserTag(3)+"}:open").Val(); len(got) != 3 {
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
		w.Run(userstest.RegistryOptions())
		w.agree()
		d := w.Look("ada").Devices[0]
		d.Locale = "cy"
		_, err := w.Client.RegisterDevice(w.Ctx, "ada", d)
		w.Must(err)
		w.agree()
		if got := w.Look("ada").Devices[0].Locale; got != "cy" {
			t.Errorf("the locale is %q, want that of the later record", got)
		}
	})
}
