package status

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// FuzzRows has a node answer a confirm read of two ids with any rows: their number and
// their cells, of any length or null. What is taken for rows is what stands there, each
// under its own id. All else is an error, never "no rows", nor a number that is none: the
// message would be sent again, or never.
func FuzzRows(f *testing.F) {
	ids := []string{"a", "b"}
	at := time.UnixMilli(1_790_000_000_000).UTC()
	row := func(change func([]any)) []any {
		cells := []any{"a", "d", int16(3), int8(push.StateDelivered), at, int8(push.FCM), "p", "r", int64(-5), int64(-7), nil}
		if change != nil {
			change(cells)
		}
		return cells
	}
	rows := func(n uint32, of ...[]any) []byte {
		b := binary.BigEndian.AppendUint32(nil, n)
		for _, cells := range of {
			for _, v := range cells {
				b = appendLong(b, cell(v))
			}
		}
		return b
	}
	of := func(i int, v any) []any { return row(func(cells []any) { cells[i] = v }) }
	good := rows(2, row(nil), of(0, "b"))
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(rows(0))
	f.Add(rows(0, row(nil)))
	f.Add(rows(3, row(nil), row(nil)))
	f.Add(rows(1<<31, row(nil)))
	f.Add(rows(1, of(0, "c")))
	for i := range rowColumns {
		f.Add(rows(1, of(i, nil)))
		f.Add(rows(1, of(i, []byte{})))
		f.Add(rows(1, of(i, []byte{1, 2, 3})))
	}
	f.Add(rows(1, of(2, int16(-1))))
	f.Add(rows(1, of(2, int16(32767))))
	f.Add(rows(1, of(3, int8(-1))))
	f.Add(rows(1, of(3, int8(0))))
	f.Add(rows(1, of(3, int8(99))))
	f.Add(rows(1, of(5, int8(-1))))
	packed := func(said ...any) []any {
		return append(row(nil)[:4:4], append(make([]any, 6), composite(said))...)
	}
	said := []any{at, int8(push.FCM), "p", "r", int64(-5), int64(-7)}
	f.Add(rows(2, row(nil), packed(said...)))
	f.Add(rows(1, packed(said[:5]...))) // a value may have fewer fields than its type
	f.Add(rows(1, packed(said[:4]...)))
	f.Add(rows(1, packed(append(said, "more")...)))
	for i := range said {
		for _, v := range []any{nil, []byte{}, []byte{1, 2, 3}} {
			other := slices.Clone(said)
			other[i] = v
			f.Add(rows(1, packed(other...)))
		}
	}
	whole := cell(composite(said))
	for _, raw := range [][]byte{{}, {0, 0, 0}, whole[:len(whole)-1], whole[:len(whole)-10], append(slices.Clone(whole), 1, 2), {0, 0, 0, 99, 1}} {
		f.Add(rows(1, of(10, raw)))
	}
	for _, later := range []time.Duration{-time.Millisecond, 0, time.Millisecond} { // in both formats
		f.Add(rows(1, of(10, composite{at.Add(later), int8(push.APNS), "q", "s", int64(6), nil})))
		f.Add(rows(1, of(10, composite{at.Add(later), nil, nil, nil, nil, nil})))
	}
	f.Add(rows(1, of(10, composite{nil, int8(push.APNS), "q", "s", int64(6), nil}))) // without a time, beside columns
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, answer []byte) {
		n := startNode(t)
		n.raw = answer
		c := n.open(t)
		r := reading{found: make([][]push.Row, 2), first: map[string]int{"a": 0, "b": 1}}
		err := c.readOnce(t.Context(), 1, ids, &r)
		want, wellFormed := readStrictly(answer, ids)
		if (err == nil) != wellFormed {
			t.Fatalf("got %v (error %v), want rows: %v", r.found, err, wellFormed)
		}
		if wellFormed && !reflect.DeepEqual(r.found, want) {
			t.Errorf("got %+v, want %+v", r.found, want)
		}
	})
}

// readStrictly reads the rows of an answer byte for byte; ok is false where one is not as
// the store's own statement writes it, or of another id.
func readStrictly(answer []byte, ids []string) (rows [][]push.Row, ok bool) {
	if len(answer) < 4 {
		return nil, false
	}
	rows, count := make([][]push.Row, len(ids)), int32(binary.BigEndian.Uint32(answer))
	answer = answer[4:]
	for range count {
		var key [4][]byte
		for i, size := range [4]int{-1, -1, 2, 1} {
			if key[i], answer, ok = cutCell(answer); !ok || size >= 0 && len(key[i]) != size {
				return nil, false
			}
		}
		said, rest, ok := cutDetails(answer, false)
		if !ok {
			return nil, false
		}
		whole, rest, ok := cutCell(rest)
		if !ok {
			return nil, false
		}
		answer = rest
		if len(whole) > 0 {
			packed, _, ok := cutDetails(whole, true)
			if !ok || len(packed[0]) == 0 || len(packed[4]) == 0 {
				return nil, false
			}
			if len(said[0]) == 0 || int64(binary.BigEndian.Uint64(packed[0])) >= int64(binary.BigEndian.Uint64(said[0])) {
				said = packed
			}
		}
		if len(said[4]) == 0 {
			return nil, false
		}
		r := push.Row{ID: string(key[0]), Device: string(key[1]), Step: int16(binary.BigEndian.Uint16(key[2])), State: push.State(key[3][0]),
			ProviderID: string(said[2]), Reason: string(said[3]), UserHash: binary.BigEndian.Uint64(said[4])}
		if len(said[0]) > 0 {
			r.At = time.UnixMilli(int64(binary.BigEndian.Uint64(said[0]))).UTC()
		}
		if len(said[5]) > 0 {
			r.Place = binary.BigEndian.Uint64(said[5])
		}
		if len(said[1]) > 0 {
			r.Platform = push.Platform(said[1][0])
		}
		at := slices.Index(ids, r.ID)
		if at < 0 || r.Step < 0 || r.State <= 0 {
			return nil, false
		}
		rows[at] = append(rows[at], r)
	}
	return rows, count >= 0
}

// cutCell takes a value off: its length, -1 and less for null, and its bytes.
func cutCell(b []byte) (v, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := max(0, int(int32(binary.BigEndian.Uint32(b))))
	if b = b[4:]; len(b) < n {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// cutDetails takes off what a row says besides its key. Of a value of several fields
// the last may not be there.
func cutDetails(b []byte, fields bool) (said [6][]byte, rest []byte, ok bool) {
	for i, size := range [6]int{8, 1, -1, -1, 8, 8} {
		if fields && len(b) == 0 {
			return said, nil, true
		}
		if said[i], b, ok = cutCell(b); !ok || size >= 0 && len(said[i]) != size && len(said[i]) > 0 {
			return said, nil, false
		}
	}
	return said, b, true
}
