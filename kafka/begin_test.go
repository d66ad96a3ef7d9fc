package kafka

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

// assigned returns a source that has partitions 0 and 1 of push and polls nothing. The
// log of partition 0 has offsets 8 and 9, that of partition 1 is empty, and nothing
// was committed.
func assigned(t *testing.T) (*cluster, *Source) {
	t.Helper()
	c := newCluster(t, 2, []string{"push", "other"})
	c.commitAt("g", "other", 0) // so that there is a group
	for p, start := range []int64{8, 10} {
		c.produce("push", int32(p), 0, 10)
		if err := c.DeleteRecords("push", int32(p), start); err != nil {
			t.Fatal(err)
		}
	}
	s := c.unjoined(SourceOptions{Topics: mainTopic("push")})
	s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0, 1}})
	return c, s
}

// lags returns the lags of partitions 0 and 1 of push; -1 = not known.
func (s *Source) lags() [2]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [2]int64{s.parts[push.Partition{Topic: "push"}].lag(), s.parts[push.Partition{Topic: "push", ID: 1}].lag()}
}

// Where nothing was committed, a partition begins where its log does: deleted records
// are no lag, and an empty log is no standstill.
func TestAFreshPartitionBeginsWhereItsLogDoes(t *testing.T) {
	atStart := func() map[string]map[int32]kgo.Offset {
		return map[string]map[int32]kgo.Offset{"push": {0: kgo.NewOffset().AtStart(), 1: kgo.NewOffset().AtStart(), 7: kgo.NewOffset().At(3)}}
	}
	stands := func(t *testing.T, s *Source) {
		t.Helper()
		for id, at := range []int64{8, 10} {
			if a := s.parts[push.Partition{Topic: "push", ID: int32(id)}]; a.position() != at || a.committed != -1 || !a.isFresh() {
				t.Errorf("partition %d: got position %d, commit %d; want %d and no commit", id, a.position(), a.committed, at)
			}
		}
	}
	check := func(t *testing.T, s *Source) {
		t.Helper()
		s.lookOnce(t.Context())
		if lags := s.lags(); lags != [2]int64{2, 0} {
			t.Errorf("got lags %v, want 2 and 0", lags)
		}
		if still := s.Standstill(time.Now()); len(still) != 1 || still[0].Partition.ID != 0 || still[0].Lag != 2 {
			t.Errorf("got %+v, want only the 2 records of partition 0", still)
		}
		for id, want := range map[string]float64{"0": 2, "1": 0} {
			if shown := testutil.ToFloat64(s.options.Metrics.lag.WithLabelValues("push", id)); shown != want {
				t.Errorf("the metric shows lag %v of partition %s, want %v", shown, id, want)
			}
		}
	}
	t.Run("as the brokers say when it is assigned", func(t *testing.T) {
		_, s := assigned(t)
		offsets, err := s.startAt(t.Context(), atStart())
		want := map[int32]kgo.Offset{0: kgo.NewOffset().At(8), 1: kgo.NewOffset().At(10), 7: kgo.NewOffset().At(3)}
		if err != nil || !maps.Equal(offsets["push"], want) {
			t.Errorf("got start offsets %v, error %v; want %v", offsets, err, want)
		}
		stands(t, s)
		check(t, s)
	})
	t.Run("as the brokers say when it was lost and is ours again", func(t *testing.T) {
		_, s := assigned(t)
		lost := s.owned()
		s.lose(lost)
		s.begin(t, generation{"again", 1}, nil)
		s.reclaimLost(t.Context())
		for _, a := range lost.owned {
			if s.parts[a.partition] == a {
				t.Errorf("partition %d has no new assignment", a.partition.ID)
			}
		}
		stands(t, s)
		check(t, s)
	})
	t.Run("as a look finds it, when no broker answered in time", func(t *testing.T) {
		c, s := assigned(t)
		silent := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "push", Err: kerr.UnknownServerError, Count: -1})
		offsets, err := s.startAt(t.Context(), atStart())
		want := map[int32]kgo.Offset{0: kgo.NewOffset().At(0), 1: kgo.NewOffset().At(0), 7: kgo.NewOffset().At(3)}
		if err != nil || !maps.Equal(offsets["push"], want) {
			t.Errorf("got start offsets %v, error %v; want %v", offsets, err, want)
		}
		silent.Remove()
		if lags := s.lags(); lags != [2]int64{-1, -1} {
			t.Errorf("got lags %v, want none: the log's start is not known yet", lags)
		}
		check(t, s)
	})
}

// Reading begins at 0 where no broker told where the log starts. If the records there
// are gone, it begins anew at the start as soon as that is told.
func TestAStartThatIsToldLate(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	if err := c.DeleteRecords("push", 0, 8); err != nil {
		t.Fatal(err)
	}
	silent := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "push", Err: kerr.UnknownServerError, Count: -1})
	var told troubles
	s := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond, Health: told.health})
	eventually(t, "the records at 0 are missed", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		a := s.parts[push.Partition{Topic: "push"}]
		return a != nil && a.lost && a.ended // and hands out no more
	})
	silent.Remove()
	if b := nextItems(t, s, 2)[0]; b.Items[0].Offset != 8 {
		t.Errorf("got start %d, want 8", b.Items[0].Offset)
	}
	if all := told.told(); len(all) > 0 {
		t.Errorf("got stopped partitions %v, want none", all)
	}
}

// A lost partition begins anew when its own start is known: those of others may have
// no leader.
func TestALostPartitionNeedsItsOwnStartOnly(t *testing.T) {
	for silent, anew := range map[int32]bool{0: false, 1: true} {
		c, s := assigned(t)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "push", Partitions: []int32{silent}, Err: kerr.UnknownServerError, Count: -1})
		a := s.parts[push.Partition{Topic: "push"}]
		e := s.owned()
		e.owned = []*assignment{a}
		s.begin(t, generation{"again", 1}, nil)
		s.lose(e)
		s.reclaimLost(t.Context())
		b := s.parts[a.partition]
		if b != a != anew || anew && b.position() != 8 {
			t.Errorf("partition 0: got a new assignment %v at %d, although the start of partition %d is not known", b != a, b.position(), silent)
		}
	}
}

// If the group has committed an offset, a partition begins there and not at its log's
// start.
func TestACommittedPartitionBeginsThere(t *testing.T) {
	_, s := assigned(t)
	if _, err := s.startAt(t.Context(), map[string]map[int32]kgo.Offset{"push": {0: kgo.NewOffset().At(9), 1: kgo.NewOffset().At(10)}}); err != nil {
		t.Fatal(err)
	}
	a := s.parts[push.Partition{Topic: "push"}]
	if a.committed != 9 || a.from != -1 || a.position() != 9 {
		t.Errorf("got commit %d, from %d, position %d; want 9, nothing and 9", a.committed, a.from, a.position())
	}
	s.lookOnce(t.Context())
	if lags := s.lags(); lags != [2]int64{1, 0} {
		t.Errorf("got lags %v, want 1 and 0", lags)
	}
}

// A member whose session ends while no broker tells where reading begins stops asking.
func TestNoStartIsWaitedForBeyondTheSession(t *testing.T) {
	c, s := assigned(t)
	s.options.Reread = 1
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnknownServerError, Count: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if offsets, err := s.startAt(ctx, map[string]map[int32]kgo.Offset{"push": {0: kgo.NewOffset().AtStart()}}); !errors.Is(err, context.DeadlineExceeded) || offsets != nil {
		t.Errorf("got start offsets %v, error %v; want the end of the session", offsets, err)
	}
}
