//go:build planted

package planted

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// The bugs of lanes that send at most once.

// sendBeforeIntents commits and sends what has no intent yet: the intents
// become durable only later.
func sendBeforeIntents(s *soil) {
	inner := s.Status
	s.Status = plantedStatus{inner, func(ctx context.Context, rows []push.Row) error {
		if !intended(rows) {
			return inner.Write(ctx, rows)
		}
		rows = ownRows(rows)
		time.AfterFunc(300*time.Millisecond, func() { _ = inner.Write(context.Background(), rows) })
		return nil
	}}
}

// sendBeforeCommit takes for committed what is only about to be: whether the
// coordinator takes the commit, and so whether the partition is still this
// member's, is not waited for. The lease is ignored too: it keeps a worker that
// wakes up from intending anything, and the commit is for one that was stopped
// right behind that.
func sendBeforeCommit(s *soil) {
	ignoreLease(s)
	var mu sync.Mutex
	trackers := make(map[*pipeline.Tracker]bool) // guarded by mu
	var committing sync.Mutex                    // one commit at a time
	s.Source = plantedSource{s.Source, func(b *pipeline.Batch) {
		mu.Lock()
		defer mu.Unlock()
		trackers[b.Tracker] = true
	}, func(_ context.Context, inner func() error) error {
		mu.Lock()
		defer mu.Unlock()
		for t := range trackers {
			if next, ours := t.Watermark(); ours {
				t.Committed(next)
			}
		}
		if committing.TryLock() {
			go func() { // ends with the commit time-out
				defer committing.Unlock()
				_ = inner()
			}()
		}
		return nil
	}}
}

// skipReread does not look for intents without a result below the committed
// offset.
func skipReread(s *soil) {
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		for i := range b.Items {
			if b.Items[i].Reread {
				b.Items[i].Decide(push.Duplicate, "", "")
			}
		}
	}}
}

// resendIntent takes an intent without a result for something that was never
// sent, and sends it.
func resendIntent(s *soil) {
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		for i := range b.Items {
			if it := &b.Items[i]; it.Reread {
				it.Reread = false // to be sent, and not only looked at
				b.Tracker.Committed(it.Offset + 1)
			}
		}
	}}
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		if d, ok := stage.(*stages.Dedupe); ok {
			return &stages.Dedupe{Filter: d.Filter, Ledger: resultsOnly{d.Ledger}}
		}
		return nil
	})
}

// resultsOnly is a ledger that tells of no intent.
type resultsOnly struct{ pipeline.Ledger }

func (l resultsOnly) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	found, err := l.Ledger.Read(ctx, ids)
	for i := range found {
		found[i] = slices.DeleteFunc(found[i], func(r push.Row) bool { return r.State == push.StateSending })
	}
	return found, err
}
