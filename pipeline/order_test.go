package pipeline_test

import (
	"hash/fnv"
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
