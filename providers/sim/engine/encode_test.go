package engine

import (
	"slices"
	"strconv"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// Headers with a static index come out under their names, as do those without,
// and every status.
func TestAppendHeaders(t *testing.T) {
	for _, status := range []int{200, 204, 400, 403, 404, 410, 429, 500, 503} {
		ans := Answer{Status: status, Fields: []Field{
			{"apns-id", "0199f3c2-7a54-8c3e-9d2b-000000000001"}, {"content-type", "application/json"}, {"retry-after", "7"},
			{"date", "Sat, 21 Nov 2026 10:00:00 GMT"},
		}}
		frame := appendHeaders(nil, 7, &ans)
		got, err := hpack.NewDecoder(0, nil).DecodeFull(frame[headerSize:])
		if err != nil {
			t.Fatal(err)
		}
		var fields []Field
		for _, f := range got[1:] {
			fields = append(fields, Field{f.Name, f.Value})
		}
		if got[0].Name != ":status" || got[0].Value != strconv.Itoa(status) || !slices.Equal(fields, ans.Fields) {
			t.Errorf("status %d: got %v", status, got)
		}
	}
}
