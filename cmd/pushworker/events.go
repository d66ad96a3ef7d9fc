package main

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// eventsRound is how often the counts go to push.events.
const eventsRound = time.Second

// tellEvents produces the verdict counts until ctx ends, and then the last
// ones. Counts that cannot be produced are lost, with a word in the log: they
// are for dashboards. Failures are not among them: the pipeline hands those
// over itself.
func (w *worker) tellEvents(ctx context.Context, events *pipeline.Events, producer pipeline.Producer) {
	ticker := time.NewTicker(eventsRound)
	defer ticker.Stop()
	tell := func(ctx context.Context) {
		var hs []pipeline.Handover
		for _, value := range events.Take(time.Now()) {
			hs = append(hs, pipeline.Handover{To: pipeline.ToEvents, Event: value})
		}
		if len(hs) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, w.config.Kafka.CommitTimeout)
		defer cancel()
		if err := producer.Produce(ctx, hs); err != nil {
			w.log.Warn("verdict counts are lost", "records", len(hs), "error", err)
		}
	}
	for {
		select {
		case <-ticker.C:
			tell(context.WithoutCancel(ctx))
		case <-ctx.Done():
			tell(context.WithoutCancel(ctx))
			return
		}
	}
}
