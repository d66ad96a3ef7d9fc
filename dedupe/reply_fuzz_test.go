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
	// sentinel, birth mark, old id, young id; number of marks of full filters
	f.Add("1111", int64(0), byte(0))
	f.Add("1100", int64(0), byte(0))
	f.Add("0100", int64(0), byte(0))
	f.Add("0000", int64(0), byte(0))
	f.Add("1100", int64(1), byte(0))
	f.Add("0100", int64(2), byte(0))
	f.Add("110", int64(0), byte(0))
	f.Add("11000", int64(0), byte(0))
	f.Add("x1ss", int64(0), byte(0))
	f.Add("tfff", int64(0), byte(0))
	f.Add("1100", int64(0), byte(1))
	f.Add("1100", int64(0), byte(2))
	birth := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	ids := []string{"old", uuids(birth.Add(youngBy+time.Minute), 1, "young")[0]}
	f.Fuzz(func(t *testing.T, answers string, marks int64, kind byte) {
		s := &scratch{asks: []ask{{w: &window{}, ids: []int32{0, 1}, birth: birth.UnixMilli(), cmd: redis.NewCmd(t.Context())}}}
		s.askMarks(t.Context(), false)
		a, found := &s.asks[0], s.marks[0].cmd
		reply := make([]any, len(answers))
		for i := range reply {
			reply[i] = map[byte]any{'0': int64(0), '1': int64(1), 't': true, 'f': false, 's': "0", 'e': redis.Nil}[answers[i]]
		}
		a.cmd.SetVal(reply)
		found.SetVal([]any{marks, "2", nil}[kind%3])
		maybe := make([]bool, len(ids))
		if _, err := s.readMarks(); err != nil {
			return
		}
		if err := a.read(ids, maybe, s.full[0]); err != nil {
			return
		}
		if len(reply) != 4 {
			t.Fatalf("%d answers to 4 queries were accepted", len(reply))
		}
		full := kind%3 == 1 || marks > 0
		clear := func(i int) bool { return answers[i] == '0' || answers[i] == 'f' }
		for i, young := range []bool{false, true} {
			no := !full && clear(2+i) && (!clear(0) || young && !clear(1))
			if maybe[i] != !no {
				t.Errorf("%q, marks %v: id %d maybe %v, want %v", answers, found.Val(), i, maybe[i], !no)
			}
		}
	})
}
