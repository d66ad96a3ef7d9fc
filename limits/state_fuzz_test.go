package limits

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// FuzzState reads whatever Redis may have as a user's limiter state: a version,
// a hash of the rest, which may be correct, and the rest. A complete state of
// ours is taken with its events. Everything else is an error, not "no events",
// which would grant every limit again.
func FuzzState(f *testing.F) {
	good := encodeState(nil, []event{{id: 1, kind: 2, at: start.UnixMilli()}, {id: 3, kind: 2, at: start.Add(-time.Hour).UnixMilli()}})
	for _, rest := range [][]byte{good[stampSize:], good[stampSize:headerSize], good[stampSize : len(good)-1], good[stampSize : headerSize-1], nil} {
		f.Add(byte(1), rest, true)
		f.Add(byte(1), rest, false)
		f.Add(byte(2), rest, true)
		f.Add(byte(0), rest, true)
	}
	f.Fuzz(func(t *testing.T, version byte, rest []byte, whole bool) {
		sum := xxhash.Sum64(rest)
		if !whole {
			sum ^= 1
		}
		state := append(binary.LittleEndian.AppendUint64([]byte{version}, sum), rest...)
		got, err := decodeState(nil, state)
		ours := version == 1 && whole && len(rest) >= 8 && (len(rest)-8)%16 == 0
		if (err == nil) != ours || err != nil && len(got) != 0 {
			t.Fatalf("version %d, %d bytes, whole %v: %d events, %v", version, len(rest), whole, len(got), err)
		}
		if err != nil {
			return
		}
		if len(got) != (len(rest)-8)/16 {
			t.Fatalf("%d events in %d bytes", len(got), len(rest))
		}
		if base := binary.LittleEndian.Uint64(rest); len(got) == 0 || base > 1<<53 {
			return // not a time that a worker writes
		}
		again, err := decodeState(nil, encodeState(nil, got))
		if err != nil || len(again) != len(got) {
			t.Fatalf("%+v, written again: %+v, %v", got, again, err)
		}
		for i := range got {
			if again[i] != got[i] {
				t.Errorf("event %d: %+v, then %+v", i, got[i], again[i])
			}
		}
	})
}
