package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
)

// seenOnce takes no ids the first time.
type seenOnce struct {
	Seen
	first func()
	took  []string
}

func (s *seenOnce) Add(_ context.Context, ids []string) error {
	if s.first != nil {
		s.first()
		s.first = nil
		return errors.New("away")
	}
	s.took = append(s.took, ids...)
	return nil
}

// While the filter takes no ids, a partition that leaves waits for it no longer: what
// has ended of it is given back, and only that of the others is done.
func TestAPartitionThatLeavesDoesNotWaitForTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var items []*Item
		trackers := make([]*Tracker, 2)
		for n, id := range []string{"leaves", "stays"} {
			trackers[n] = NewTracker(TrackerOptions{Partition: push.Partition{ID: int32(n)}, Capacity: 10})
			b := &Batch{Tracker: trackers[n], Items: []Item{{Message: push.Message{ID: id, UserID: "u"}}}}
			trackers[n].Admit(b)
			items = append(items, &b.Items[0])
		}
		seen := &seenOnce{first: trackers[0].Leave}
		p := &Pipeline{toRemember: newQueue[*Item](), opt: Options{Lane: "x", Seen: seen, Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(prometheus.NewRegistry()), Events: noEvents{}}}
		p.remember(t.Context(), items)
		if len(seen.took) != 1 || seen.took[0] != "stays" {
			t.Errorf("the filter got %q, want only the items that stay", seen.took)
		}
		for n, want := range []int64{-1, 1} {
			if next, _ := trackers[n].Watermark(); next != want || trackers[n].inFlight() {
				t.Errorf("%s: watermark %d, want %d; in flight %d", items[n].ID, next, want, trackers[n].active)
			}
		}
	})
}
