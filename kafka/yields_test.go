package kafka

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/watch"
)

// A source that yields polls nothing, says so of its partitions, and goes on where it was.
func TestASourceThatYields(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	m := NewMetrics(nil)
	var yields atomic.Bool
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Metrics: m, Yields: yields.Load})
	c.produce("push", 0, 0, 5)
	done(nextItems(t, s, 5)...)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	yields.Store(true)
	eventually(t, "the partition is paused", func() bool { return testutil.ToFloat64(m.paused.WithLabelValues("push")) == 1 })
	c.produce("push", 0, 5, 5)
	eventually(t, "it stands still for other lanes", func() bool {
		still := s.Standstill(time.Now())
		return len(still) == 1 && still[0].Waiting == watch.WaitingLane && still[0].Lag == 5
	})
	yields.Store(false)
	first := nextItems(t, s, 5)[0].Items[0]
	if first.Offset != 5 {
		t.Errorf("it goes on at offset %d, want 5", first.Offset)
	}
}
