package status

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// manyRows are so many that they come into their batches in several parts, of one bucket
// each.
func manyRows() []push.Row {
	var ids []string
	for i := range 4 * push.Stretch {
		ids = append(ids, fmt.Sprintf("%c%d", 'a'+rune(i/(push.Stretch/2)), i))
	}
	return rowsOf(ids...)
}

// The first part of a call's rows may be durable before the last one has come to its batch:
// the call waits for that one, too.
func TestWriteInPartsReturnsWhenTheLastIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := manyRows()
		last, release := byFirstLetter(rows[len(rows)-1].ID), make(chan struct{})
		s := &server{answer: func(_ context.Context, _ int, bucket int64) error {
			if bucket == last {
				<-release
			}
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.rows = push.Stretch / 2 }) // a part fills a batch
		done := make(chan error, 1)
		go func() { done <- g.write(t.Context(), rows) }()
		time.Sleep(time.Second)
		select {
		case err := <-done:
			t.Errorf("returned %v before the last part was durable", err)
		default:
		}
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if left := gauge(t, g.metrics.unacknowledged); left != 0 || s.rows != 0 {
			t.Errorf("%v rows are left", left)
		}
	})
}

// A caller who gives up between two parts of his rows leaves none behind.
func TestGivingUpBetweenParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		s := &server{answer: func(_ context.Context, n int, _ int64) error {
			giveUp()
			time.Sleep(time.Second)
			return errors.New("no hosts available")
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 1 })
		if err := g.write(ctx, manyRows()); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that it was given up", err)
		}
		time.Sleep(time.Minute)
		sent := s.attempts()
		if left := gauge(t, g.metrics.unacknowledged); left != 0 || sent > 8 {
			t.Errorf("%v rows are left, and %d batches were sent", left, sent)
		}
	})
}
