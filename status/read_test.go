package status

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/push"
)

// cellsOf are a row's cells in a confirm read's answer.
func cellsOf(r *push.Row, packed bool) []any {
	key := []any{r.ID, r.Device, r.Step, int8(r.State)}
	said := []any{r.At, int8(r.Platform), r.ProviderID, r.Reason, int64(r.UserHash), int64(r.Place)}
	if packed {
		return slices.Concat(key, make([]any, len(said)), []any{composite(said)})
	}
	return slices.Concat(key, said, []any{nil})
}

// scanning scans rows one after the other, as the driver does with a server's
// answer.
func scanning(rows ...push.Row) func(dest ...any) bool {
	var cells [][]any
	for i := range rows {
		cells = append(cells, cellsOf(&rows[i], false))
	}
	return scanningCells(cells...)
}

func scanningCells(rows ...[]any) func(dest ...any) bool {
	return func(dest ...any) bool {
		if len(rows) == 0 {
			return false
		}
		cells := rows[0]
		rows = rows[1:]
		for i, v := range cells {
			switch to := dest[i].(type) {
			case *string:
				*to = v.(string)
			case gocql.Unmarshaler:
				if to.UnmarshalCQL(nil, cell(v)) != nil {
					return false
				}
			}
		}
		return true
	}
}

// Rows are stored at the position of their id, in place of those of an earlier
// attempt, and nowhere else. An answer with any other row answers another
// query, so none of it counts.
func TestRowsStandWhereTheirIDWasAskedFor(t *testing.T) {
	row := func(id, device string) push.Row {
		return push.Row{ID: id, Device: device, Step: 3, State: push.StateDelivered, At: time.UnixMilli(1e12).UTC(),
			Platform: push.FCM, ProviderID: "p", Reason: "r", UserHash: 1<<63 + 5, Place: 1<<63 + 6}
	}
	elsewhere := []push.Row{row("z", "of another chunk")}
	for _, tt := range []struct {
		why  string
		rows []push.Row
		want [][]push.Row // nil = the answer is refused
	}{
		{"nothing is known", nil, [][]push.Row{elsewhere, nil, nil}},
		{"rows of both, in any order", []push.Row{row("b", "1"), row("a", "1"), row("b", "2")},
			[][]push.Row{elsewhere, {row("a", "1")}, {row("b", "1"), row("b", "2")}}},
		{"a row of an id that nobody asked for", []push.Row{row("a", "1"), row("c", "1")}, nil},
		{"a row that another chunk asks for", []push.Row{row("z", "1"), row("a", "1")}, nil},
	} {
		r := reading{found: make([][]push.Row, 3), first: map[string]int{"z": 0, "a": 1, "b": 2}}
		r.found[0], r.found[1], r.found[2] = elsewhere, []push.Row{row("a", "before")}, []push.Row{row("b", "before")}
		err := r.collect([]string{"a", "b"}, scanning(tt.rows...))
		if tt.want == nil {
			if !errors.Is(err, errNotAsked) || !reflect.DeepEqual(r.found[0], elsewhere) {
				t.Errorf("%s: %v, another chunk has %v", tt.why, err, r.found[0])
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(r.found, tt.want) {
			t.Errorf("%s: %v\n got %v\nwant %v", tt.why, err, r.found, tt.want)
		}
	}
}
