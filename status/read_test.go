package status

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// scanning scans rows one after the other, as the driver does with what a server
// said.
func scanning(rows ...pipeline.Row) func(dest ...any) bool {
	return func(dest ...any) bool {
		if len(rows) == 0 {
			return false
		}
		r := rows[0]
		rows = rows[1:]
		*dest[0].(*string), *dest[1].(*string), *dest[2].(*int16) = r.ID, r.Device, r.Step
		*dest[3].(*int8), *dest[4].(*time.Time), *dest[5].(*int8) = int8(r.State), r.At, int8(r.Platform)
		*dest[6].(*string), *dest[7].(*string), *dest[8].(*int64) = r.ProviderID, r.Reason, int64(r.UserHash)
		return true
	}
}

// Rows stand where their id was asked for, in place of those of an attempt
// before, and nowhere else. An answer with any other row is one to another
// question: none of it is believed.
func TestRowsStandWhereTheirIDWasAskedFor(t *testing.T) {
	row := func(id, device string) pipeline.Row {
		return pipeline.Row{ID: id, Device: device, Step: 3, State: pipeline.StateDelivered, At: time.UnixMilli(1e12).UTC(),
			Platform: pipeline.FCM, ProviderID: "p", Reason: "r", UserHash: 1<<63 + 5}
	}
	elsewhere := []pipeline.Row{row("z", "of another chunk")}
	for _, tt := range []struct {
		why  string
		rows []pipeline.Row
		want [][]pipeline.Row // nil = the answer is refused
	}{
		{"nothing is known", nil, [][]pipeline.Row{elsewhere, nil, nil}},
		{"rows of both, in any order", []pipeline.Row{row("b", "1"), row("a", "1"), row("b", "2")},
			[][]pipeline.Row{elsewhere, {row("a", "1")}, {row("b", "1"), row("b", "2")}}},
		{"a row of an id that nobody asked for", []pipeline.Row{row("a", "1"), row("c", "1")}, nil},
		{"a row that another chunk asks for", []pipeline.Row{row("z", "1"), row("a", "1")}, nil},
	} {
		r := reading{found: make([][]pipeline.Row, 3), first: map[string]int{"z": 0, "a": 1, "b": 2}}
		r.found[0], r.found[1], r.found[2] = elsewhere, []pipeline.Row{row("a", "before")}, []pipeline.Row{row("b", "before")}
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
