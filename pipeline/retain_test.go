package pipeline_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/pushfleet/pushfleet/pipeline"
)

// A pipeline that waits for records keeps none of the batches that are done: a
// group of answers that one of its goroutines remembered would keep up to 8 MiB
// each, for as long as nothing new comes.
func TestNothingKeepsABatchThatIsDone(t *testing.T) {
	for _, faults := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			w.faults = faults
			w.fill(3, 1000)
			if faults {
				w.retry()
			}
			batches := make([]weak.Pointer[pipeline.Batch], len(w.batches))
			items := make([]weak.Pointer[pipeline.Item], len(w.batches))
			for i, b := range w.batches {
				batches[i], items[i] = weak.Make(b), weak.Make(&b.Items[0])
			}
			w.batches = slices.Clone(w.batches) // so that clear reaches what Next has passed
			all := w.batches
			p, _ := w.pipeline(t, 300)
			p.Options().Latest = nil // ours would keep them
			ctx, stop := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			w.wait(t)
			clear(all)
			runtime.GC()
			runtime.GC()
			for i := range batches {
				if batches[i].Value() != nil || items[i].Value() != nil {
					t.Errorf("with faults: %v: something still points to batch %d of %d", faults, i, len(batches))
				}
			}
			stop()
			run.Wait()
		})
	}
}
