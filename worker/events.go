package worker

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/rates"
)

const (
	// eventsRound is how often the counts go to push.events.
	eventsRound = time.Second
	// limitsRound is how often it is told how limits stand.
	limitsRound = 10 * time.Second
)

// tellRate tells push.events of a rate that this worker has changed.
func (g *group) tellRate(c rates.Change) {
	g.shared.events.Rate(events.Rate{Name: c.Rate, From: c.From, To: c.To, Cause: string(c.Cause), At: time.Now()})
}

// produceRanges produces the ranges of a lane, all to one partition of push.events, so that
// readers find them in their order.
func produceRanges(lane string, producer pipeline.Producer) func(context.Context, [][]byte) error {
	key := []byte(lane)
	return func(ctx context.Context, records [][]byte) error {
		hs := make([]pipeline.Handover, len(records))
		for i, value := range records {
			hs[i] = pipeline.Handover{To: pipeline.ToEvents, Event: value, EventKey: key}
		}
		return producer.Produce(ctx, hs)
	}
}

// tellRanges produces the ranges that the topic has not taken when they were committed.
func (g *group) tellRanges(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, eventsRound)
	defer cancel()
	for _, l := range g.lanes {
		if l.teller.Untold() > 0 && l.teller.Retry(ctx) != nil {
			g.Log.Warn("push.events does not take what became of ranges of offsets: they are told later", "lane", l.name, "ranges", l.teller.Untold())
		}
	}
}

// tellQuarantine tells push.events of what this worker has stopped.
func (g *group) tellQuarantine(q gates.Quarantined) {
	now, word := time.Now(), q.Word
	if word != gates.ManyCampaigns && word != pipeline.FoundByFeedback {
		word = g.shared.pipeline.Word(word)
	}
	g.shared.events.Quarantine(events.Quarantine{Route: q.Route.String(), Origin: q.Origin.String(), Word: word, At: now, Until: now.Add(q.Left).UTC()})
}

// tellEvents produces the records of push.events until ctx ends, and then the last
// ones. It is best effort, so that a topic for dashboards never delays a delivery:
// records that cannot be produced are missing there, and the gap is announced as
// soon as the topic takes records again. The status rows are durable by then.
func (g *group) tellEvents(ctx context.Context, events *events.Collector, producer pipeline.Producer) {
	ticker := time.NewTicker(eventsRound)
	defer ticker.Stop()
	last := time.Now()
	limitsLast := last
	tell := func(ends bool) {
		now := time.Now()
		since := last
		last = now
		g.tellRanges(context.WithoutCancel(ctx))
		var hs []pipeline.Handover
		for _, value := range events.Take(now) {
			hs = append(hs, pipeline.Handover{To: pipeline.ToEvents, Event: value})
		}
		if ends || now.Sub(limitsLast) >= limitsRound {
			limitsLast = now
			if value := events.Limits(g.shared.rules.standings(now), now); value != nil {
				hs = append(hs, pipeline.Handover{To: pipeline.ToEvents, Event: value})
			}
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
			tell(false)
		case <-events.Soon():
			tell(false)
		case <-ctx.Done():
			tell(true)
			return
		}
	}
}
