package worker

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/rates"
)

// eventsRound is how often the counts go to push.events.
const eventsRound = time.Second

// tellRate tells push.events of a rate that this worker has changed.
func (g *group) tellRate(c rates.Change) {
	g.shared.events.Rate(events.Rate{Name: c.Rate, From: c.From, To: c.To, Cause: string(c.Cause), At: time.Now()})
}

// tellEvents produces the records of push.events until ctx ends, and then the last
// ones. It is best effort, so that a topic for dashboards never delays a delivery:
// records that cannot be produced are missing there, and the gap is announced as
// soon as the topic takes records again. The status rows are durable by then.
func (g *group) tellEvents(ctx context.Context, events *events.Collector, producer pipeline.Producer) {
	ticker := time.NewTicker(eventsRound)
	defer ticker.Stop()
	last := time.Now()
	tell := func() {
		now := time.Now()
		since := last
		last = now
		var hs []pipeline.Handover
		for _, value := range events.Take(now) {
			hs = append(hs, pipeline.Handover{To: pipeline.ToEvents, Event: value})
		}
		if len(hs) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Config.Kafka.CommitTimeout)
		defer cancel()
		if err := producer.Produce(ctx, hs); err != nil {
			events.Missed(since, now)
			g.Log.Warn("push.events has a gap", "records", len(hs), "since", since, "error", err)
		}
	}
	for {
		select {
		case <-ticker.C:
			tell()
		case <-events.Soon():
			tell()
		case <-ctx.Done():
			tell()
			return
		}
	}
}
