package pipeline_test

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// scattered puts ids into buckets without regard to their order.
type scattered struct{ pipeline.Status }

func (scattered) Bucket(id string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return int64(h.Sum64() >> 1)
}

// TestTheWatermarkMovesWhileABatchIsSent: a provider is so slow that a batch takes many
// windows. What is done of it can be committed all the same, although deliveries are
// sorted by the bucket of their rows: an owner may have no time for more.
func TestTheWatermarkMovesWhileABatchIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, window = 100, 10
		w := calm(5, 1, records)
		pr := &slow{w: w, wait: time.Second}
		p := w.pipelineTo(t, window, pr, pr)
		p.Options().Status = scattered{w}
		stop := w.starts(t, p)
		time.Sleep(4500 * time.Millisecond)
		w.mu.Lock()
		done, open := w.undone()
		committed := int(w.commits[0]) / 2 // of two offsets one is a record
		w.mu.Unlock()
		if open == 0 || done < 2*window {
			t.Fatalf("%d are done and %d open: the test wants the middle of the batch", done, open)
		}
		if committed < done-3*window {
			t.Errorf("%d of %d records are done, and only %d committed", done, records, committed)
		}
		stop()
		pr.out.Wait()
		w.checkStopped(t)
	})
}

// listed notes the offsets of what it is handed, in that order.
type listed struct {
	pipeline.Provider
	mu      sync.Mutex
	offsets []int64 // guarded by mu
}

func (l *listed) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	l.mu.Lock()
	for _, d := range ds {
		l.offsets = append(l.offsets, d.Item.Offset)
	}
	l.mu.Unlock()
	return l.Provider.Submit(ctx, ds, done)
}

// TestTheFirstOfABatchGoesFirst: an owner gets a place in a crowded window for no more
// than the first group of a batch. These are the records that hold the offset up.
func TestTheFirstOfABatchGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, window = 100, 20 // of which a group is a quarter
		w := calm(5, 1, records)
		pr := &slow{w: w, wait: time.Second}
		apns, fcm := &listed{Provider: pr}, &listed{Provider: pr}
		p := w.pipelineTo(t, window, apns, fcm)
		p.Options().Status = scattered{w}
		stop := w.starts(t, p)
		time.Sleep(time.Minute)
		for name, l := range map[string]*listed{"APNs": apns, "FCM": fcm} {
			l.mu.Lock()
			defer l.mu.Unlock()
			const group = window / 4
			if len(l.offsets) < 2*window {
				t.Fatalf("%s: %d sent: the test wants more than two windows", name, len(l.offsets))
			}
			first, rest := l.offsets[:group/2], l.offsets[group/2:] // the records' first group has devices of both
			if slices.Max(first) > slices.Min(rest) {
				t.Errorf("%s: first %v, and %d later", name, first, slices.Min(rest))
			}
		}
		stop()
		pr.out.Wait()
		w.checkStopped(t)
	})
}
