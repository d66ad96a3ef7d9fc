package kafka

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// The end of a log is what a broker has said, and not what an error of the client has: its
// zero would be a lag of none.
func TestAnErrorTellsNoEndOfALog(t *testing.T) {
	for _, row := range []struct {
		why  string
		told int64
		err  error
		want int64
	}{
		{"records have come", 80, nil, 80},
		{"an empty log", 0, nil, 0},
		{"an error of a broker that knows the end", 80, errors.New("spoilt"), 80},
		{"one of a broker that does not", -1, errors.New("no leader"), 50},
		{"one of the client", 0, errors.New("cannot dial"), 50},
	} {
		s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g"}.withDefaults(), slog.New(slog.DiscardHandler))
		s.leaderEpoch = func(push.Partition) int32 { return -1 }
		a := part(&s.options, 0)
		a.high, a.next, a.committed = 50, 40, 40
		s.parts = map[push.Partition]*assignment{a.partition: a}
		before := a.answeredAt
		s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "push", Partitions: []kgo.FetchPartition{{Partition: 0, HighWatermark: row.told, Err: row.err}}}}}}, time.Now())
		if a.high != row.want {
			t.Errorf("%s: the end is %d, want %d", row.why, a.high, row.want)
		}
		if answered := !a.answeredAt.Equal(before); answered != (row.want == row.told) {
			t.Errorf("%s: a broker has answered: %t", row.why, answered)
		}
	}
}

// How many records fit is reckoned with what is kept of them: of a value that is too large
// nothing is, although it makes a poll no trickle.
func TestWhatIsLeftOutTakesNoRoom(t *testing.T) {
	s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g"}.withDefaults(), slog.New(slog.DiscardHandler))
	a := part(&s.options, 0)
	s.parts = map[push.Partition]*assignment{a.partition: a}
	take := func(offset int64, bytes int) amount {
		came, _, _ := s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "push", Partitions: []kgo.FetchPartition{{HighWatermark: 9,
			Records: []*kgo.Record{{Topic: "push", Offset: offset, Value: make([]byte, bytes)}}}}}}}}, time.Now())
		return came
	}
	s.typical = 1000
	if came := take(0, decode.MaxValue+1); came != (amount{1, decode.MaxValue + 1}) || s.typical != 750 {
		t.Errorf("%v came of a value that is too large, and a record is taken for %d bytes, want 750", came, s.typical)
	}
	if came := take(1, 5000); came != (amount{1, 5000}) || s.typical != 5000 {
		t.Errorf("%v came of one that is not, and a record is taken for %d bytes, want 5000", came, s.typical)
	}
}
