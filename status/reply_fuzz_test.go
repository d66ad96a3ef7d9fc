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
		cells := []any{"a", "d", int16(3), int8(push.StateDelivered), at, int8(push.FCM), "p", "r", int64(-5), int64(-7)}
		if change != nil {
			change(cells)
		}
		return cells
	}
	rows := func(n uint32, of ...[]any) []byte {
		b := binary.BigEndian.AppendUint32(nil, n)
		for _, cells := range of {
			for _, v := range cells {
				if v == nil {
					b = append(b, 255, 255, 255, 255)
				} else if raw, is := v.([]byte); is {
					b = appendLong(b, raw)
				} else {
					b = appendLong(b, cell(v))
				}
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
		var cells [10][]byte
		for i, size := range [10]int{-1, -1, 2, 1, 8, 1, -1, -1, 8, 8} {
			if len(answer) < 4 {
				return nil, false
			}
			n := max(0, int(int32(binary.BigEndian.Uint32(answer))))
			if answer = answer[4:]; len(answer) < n {
				return nil, false
			}
			cells[i], answer = answer[:n], answer[n:]
			if mayBeNull := i == 4 || i == 5 || i == 9; size >= 0 && n != size && (n > 0 || !mayBeNull) {
				return nil, false
			}
		}
		r := push.Row{ID: string(cells[0]), Device: string(cells[1]), Step: int16(binary.BigEndian.Uint16(cells[2])), State: push.State(cells[3][0]),
			ProviderID: string(cells[6]), Reason: string(cells[7]), UserHash: binary.BigEndian.Uint64(cells[8])}
		if len(cells[4]) > 0 {
			r.At = time.UnixMilli(int64(binary.BigEndian.Uint64(cells[4]))).UTC()
		}
		if len(cells[9]) > 0 {
			r.Place = binary.BigEndian.Uint64(cells[9])
		}
		if len(cells[5]) > 0 {
			r.Platform = push.Platform(cells[5][0])
		}
		at := slices.Index(ids, r.ID)
		if at < 0 || r.Step < 0 || r.State <= 0 {
			return nil, false
		}
		rows[at] = append(rows[at], r)
	}
	return rows, count >= 0
}
