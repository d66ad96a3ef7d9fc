package limits

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// FuzzState reads whatever Redis may have as a user's limiter state: a version,
// a hash of the rest, which may be correct, and the rest. It is read wholly or
// is an error, and not "no events", which would grant every limit again; what
// was read is written again as it was, and judged without harm.
func FuzzState(f *testing.F) {
	at := start.UnixMilli()
	two := state{
		events: []event{{id: 1, kind: 2, at: at - 1e6, keep: seconds(at)}, {id: 1, at: at, flags: deviceFlag, extra: 7},
			{id: 3, kind: 2, at: at + 1e6, keep: seconds(at) + 2000, flags: bookedFlag | 3, extra: 9}},
		running:  []span{{dayUnit, at - at%1000, at - at%1000 + 86_400_000}, {9, 0, 1000}},
		counters: append(binary.LittleEndian.AppendUint32([]byte("rulehash"), seconds(at)+9), 2, 0, 'a', 'b'),
	}
	one := state{events: []event{{id: 1, kind: 2, at: at - 1e6}, {id: 3, kind: 2, at: at}}}
	for version, stored := range map[byte][]byte{1: one.encode(nil, 1), 2: two.encode(nil, 2)} {
		rest := stored[stampSize:]
		for _, cut := range []int{len(rest), len(rest) - 1, 40, 8, 3, 0} {
			f.Add(version, rest[:cut], true)
			f.Add(version, rest[:cut], false)
			f.Add(version+1, rest[:cut], true)
		}
	}
	rules, err := compile([]Rule{{Name: "log", Per: PerUser, Max: 1, Window: time.Hour, Over: Defer},
		{Name: "counter", Per: PerUserType, Max: 1, Window: time.Hour, Algorithm: SlidingCounter},
		{Name: "day", Per: PerDeviceType, Max: 1, Calendar: Day, Algorithm: FixedWindow}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, version byte, rest []byte, whole bool) {
		sum := xxhash.Sum64(rest)
		if !whole {
			sum ^= 1
		}
		stored := append(binary.LittleEndian.AppendUint64([]byte{version}, sum), rest...)
		var s state
		err := s.decode(stored, 1000)
		if plain := version == 1 && whole && len(rest) >= 8 && (len(rest)-8)%16 == 0 && binary.LittleEndian.Uint64(rest) <= farthest; version != 2 && (err == nil) != plain {
			t.Fatalf("version %d, %d bytes, whole %v: %v", version, len(rest), whole, err)
		}
		if err != nil {
			if len(s.events)+len(s.running)+len(s.counters) > 0 {
				t.Fatalf("%v, and %+v", err, s)
			}
			return
		}
		if version != s.version || !whole {
			t.Fatalf("version %d, whole %v was read as %d", version, whole, s.version)
		}
		if again := s.encode(nil, 1); version == 2 && slices.IsSortedFunc(s.events, func(a, b event) int { return int(a.at - b.at) }) {
			var second state
			if err := second.decode(again, 1000); err != nil || !slices.Equal(second.events, s.events) || !slices.Equal(second.running, s.running) || !slices.Equal(second.counters, s.counters) {
				t.Fatalf("%+v, written again: %+v, %v", s, second, err)
			}
		}
		j := newJudge(rules)
		if err := j.load(stored, 1000, at); err != nil {
			t.Fatal(err)
		}
		r := &Request{Owner: "u", ID: "new", At: start, Priority: 3, Devices: []Device{{Hash: 7}}}
		j.answer(r)
		if r.Allowed && (r.Deferred || r.Rule != "") || !r.Allowed && r.Rule == "" {
			t.Fatalf("%+v", r.Decision)
		}
	})
}
