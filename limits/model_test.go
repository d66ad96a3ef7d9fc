package limits

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/shards/shardstest"
)

var (
	someTypes  = []string{"order", "promo", "chat"}
	someApps   = []string{"shop", "bank"}
	someLanes  = []string{"push.promotional", "push.transactional"}
	someChans  = []string{"push", "pager"}
	someOwners = []string{"ann", "bob", "device-hash"}
	segmentsOf = map[string][]string{"ann": {"new"}, "bob": {"vip", "active"}}
	personalOf = map[string][]Personal{"ann": {{Name: "promo", Max: 2}, {Name: "rule0", Max: 1}}, "bob": {{Name: "chat", Max: 0}}}
)

func someOf(t *rapid.T, all []string, name string) []string {
	if rapid.IntRange(0, 3).Draw(t, name+"?") > 0 {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, len(all)-1, rapid.ID[string]).Draw(t, name)
}

func someRule(t *rapid.T) Rule {
	r := Rule{
		Per:   rapid.SampledFrom([]Per{PerUser, PerUser, PerUserType, PerDeviceType, PerSegment}).Draw(t, "per"),
		Types: someOf(t, someTypes, "types"), Apps: someOf(t, someApps, "apps"), Lanes: someOf(t, someLanes, "lanes"),
		Channels: someOf(t, someChans, "channels"), Segments: someOf(t, []string{"new", "active"}, "segments"),
		Max:       rapid.IntRange(1, 4).Draw(t, "max"),
		Algorithm: rapid.SampledFrom([]Algorithm{"", SlidingLog, SlidingCounter, FixedWindow, EventSet}).Draw(t, "algorithm"),
		PerApp:    rapid.Bool().Draw(t, "per app"), Personal: rapid.Bool().Draw(t, "personal"),
	}
	if rapid.Bool().Draw(t, "urgent") {
		r.Priorities = []uint8{3, 4}
	}
	if r.Per == PerSegment && r.Segments == nil {
		r.Segments = []string{"vip", "new"}
	}
	if r.Per == PerUserType || r.Per == PerDeviceType {
		r.Distinct = someOf(t, someTypes, "distinct")
	}
	if r.Per != PerDeviceType && rapid.Bool().Draw(t, "defer") {
		r.Over = Defer
	}
	if rapid.Bool().Draw(t, "by segment") {
		r.SegmentMax = map[string]int{"active": 2}
	}
	if r.Algorithm == FixedWindow || r.Algorithm == EventSet && rapid.Bool().Draw(t, "by calendar") {
		r.Calendar = rapid.SampledFrom([]Calendar{Minute, Hour, Day}).Draw(t, "calendar")
	} else {
		// Longer than the time within which an id repeats here: ids are not
		// remembered for longer than they count.
		r.Window = time.Duration(rapid.IntRange(150, 1800).Draw(t, "window")) * time.Second
	}
	return r
}

// Whatever the rules, the order, the clocks, the batches and the age of the
// states, the limiter answers like the model.
func TestLimiterAgreesWithTheModel(t *testing.T) {
	client := shardstest.Start(t)
	zones := []*time.Location{time.UTC, zone(t, "Asia/Kathmandu"), zone(t, "America/New_York")}
	rapid.Check(t, func(rt *rapid.T) { agree(t, rt, client, zones) })
}

func agree(t *testing.T, rt *rapid.T, client redis.UniversalClient, zones []*time.Location) {
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		rt.Fatal(err)
	}
	rules := rapid.SliceOfN(rapid.Custom(someRule), 1, 4).Draw(rt, "rules")
	deferring := false
	for i := range rules {
		rules[i].Name = fmt.Sprint("rule", i)
		deferring = deferring || rules[i].Over == Defer
	}
	rt.Logf("rules %+v", rules)
	l := limiter(t, client, rules...)
	books, snapshots, asked := map[string]*book{}, map[string][][]byte{}, map[string][]Request{}
	for _, o := range someOwners {
		books[o] = &book{rules: rules, running: map[Calendar][2]time.Time{}}
		snapshots[o] = [][]byte{nil}
	}
	now := start.Add(-90 * time.Minute).Add(time.Duration(rapid.IntRange(0, 120).Draw(rt, "begin")) * time.Minute)
	serial := 0
	for range rapid.IntRange(1, 12).Draw(rt, "calls") {
		now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 20, 45, 400, 4000, 40_000}).Draw(rt, "seconds")) * time.Second)
		reqs := make([]*Request, rapid.IntRange(1, 10).Draw(rt, "batch"))
		// States of before may lack what was spent since, which makes the write
		// fail. With bookings, which move, refusals of an old state may be wrong.
		states := map[string][]byte{}
		for _, o := range someOwners {
			states[o] = snapshots[o][rapid.IntRange(0, len(snapshots[o])-1).Draw(rt, "state")]
			if deferring && states[o] != nil {
				states[o] = stored(t, client, o)
			}
		}
		for i := range reqs {
			serial++
			now = now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "ms")) * time.Millisecond)
			owner := rapid.SampledFrom(someOwners).Draw(rt, "owner")
			r := &Request{}
			if before := recent(asked[owner], books[owner], now); len(before) > 0 && rapid.IntRange(0, 2).Draw(rt, "again") == 0 {
				*r = before[rapid.IntRange(0, len(before)-1).Draw(rt, "redelivered")]
			} else {
				*r = Request{Owner: owner, ID: fmt.Sprint(serial), Type: rapid.SampledFrom(someTypes).Draw(rt, "type"),
					App: rapid.SampledFrom(someApps).Draw(rt, "app"), Lane: rapid.SampledFrom(someLanes).Draw(rt, "lane"),
					Channel: rapid.SampledFrom(someChans).Draw(rt, "channel"), Priority: 3,
					Segments: segmentsOf[owner], Personal: personalOf[owner]}
				for d := range rapid.IntRange(0, 2).Draw(rt, "devices") {
					r.Devices = append(r.Devices, Device{Hash: uint32(d + 1)})
				}
				if !deferring {
					r.Priority = rapid.Uint8Range(1, 4).Draw(rt, "priority")
				}
			}
			r.Devices = slices.Clone(r.Devices)
			// With bookings clocks agree on what has expired, and nobody moves:
			// bookings of two zones may together be more than a window allows.
			r.At, r.State, r.Zone = now, states[owner], zones[len(owner)%len(zones)]
			if !deferring {
				r.Zone = zones[rapid.IntRange(0, len(zones)-1).Draw(rt, "zone")]
				r.At = now.Add(-time.Duration(rapid.IntRange(0, 25_000).Draw(rt, "slow")) * time.Millisecond)
			}
			reqs[i] = r
			asked[owner] = append(asked[owner], *r)
		}
		for range rapid.IntRange(1, 2).Draw(rt, "repeats") {
			began := map[string]bool{}
			if err := l.Decide(t.Context(), reqs); err != nil {
				rt.Fatal(err)
			}
			for _, r := range reqs {
				b := books[r.Owner]
				if !began[r.Owner] {
					began[r.Owner] = true
					b.expire(r.At)
				}
				rt.Logf("%s %s %s/%s/%s/%s p%d %v %v: %+v %+v", r.Owner, r.ID, r.Type, r.App, r.Lane, r.Channel, r.Priority, r.At, r.Zone, r.Devices, r.Decision)
				// With an old state another one of the refusing rules may be first.
				b.check(rt, r, true)
			}
		}
		for _, o := range someOwners {
			snapshots[o] = append(snapshots[o], stored(t, client, o))
		}
	}
}

// recent are the requests that may be asked again: what was spent within two
// minutes, and what waits and is not late.
func recent(asked []Request, b *book, now time.Time) (out []Request) {
	for _, r := range asked {
		at := b.find(entry{Request: r})
		switch {
		case at < 0 && now.Sub(r.At) < 2*time.Minute,
			at >= 0 && !b.entries[at].booked && now.Sub(b.entries[at].at) < 2*time.Minute,
			at >= 0 && b.entries[at].booked && now.Sub(b.entries[at].at) < 30*time.Second:
			out = append(out, r)
		}
	}
	return out
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}
