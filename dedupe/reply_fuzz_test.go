package dedupe

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// FuzzReply gives a filter any answer to a query for two ids, one of which is
// younger than the filter. Only a clear no counts: from a complete filter, or
// about an id that is younger than the filter. In all other cases the status
// store is read.
func FuzzReply(f *testing.F) {
	// sentinel, birth mark, old id, young id; mark of a full filter
	f.Add("1111", "", byte(0))
	f.Add("1100", "", byte(0))
	f.Add("0100", "", byte(0))
	f.Add("0000", "", byte(0))
	f.Add("1100", "1", byte(1))
	f.Add("0100", "2", byte(2))
	f.Add("110", "", byte(0))
	f.Add("11000", "", byte(0))
	f.Add("x1ss", "", byte(0))
	f.Add("tfff", "", byte(0))
	f.Add("1100", "", byte(3))
	f.Add("1100", "", byte(4))
	birth := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ids := []string{"old", uuids(birth.Add(youngBy+time.Minute), 1, "young")[0]}
	f.Fuzz(func(t *testing.T, answers, mark string, kind byte) {
		s := &scratch{asks: []ask{{w: &window{}, ids: []int32{0, 1}, birth: birth.UnixMilli(), cmd: redis.NewCmd(t.Context())}}}
		s.marks = []marks{{0, 1, redis.NewCmd(t.Context())}}
		reply := make([]any, len(answers))
		for i := range reply {
			reply[i] = map[byte]any{'0': int64(0), '1': int64(1), 't': true, 'f': false, 's': "0", 'e': redis.Nil}[answers[i]]
		}
		s.asks[0].cmd.SetVal(reply)
		found := [][]any{{nil}, {"1"}, {mark}, {}, {nil, nil}}[kind%5]
		s.marks[0].cmd.SetVal(found)
		maybe := make([]bool, len(ids))
		err := s.read(ids, maybe)
		if err != nil {
			return
		}
		if len(reply) != 4 || len(found) != 1 {
			t.Fatalf("%d answers to 4 queries and %d to one were accepted", len(reply), len(found))
		}
		full := found[0] != nil
		clear := func(i int) bool { return answers[i] == '0' || answers[i] == 'f' }
		for i, young := range []bool{false, true} {
			no := !full && clear(2+i) && (!clear(0) || young && !clear(1))
			if maybe[i] != !no {
				t.Errorf("%q, mark %v: id %d maybe %v, want %v", answers, found[0], i, maybe[i], !no)
			}
		}
	})
}
