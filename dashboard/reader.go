package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
)

const (
	// past is how far back events are read when a Reader begins: what totals keep. An hour
	// of 18 workers is 65,000 records, which are read in seconds.
	past = time.Hour
	// askEvery is how often positions are asked for.
	askEvery = time.Second
	// patience bounds one question, and is the longest pause after one that failed.
	patience = 10 * time.Second
	// polled is how many records are taken at once.
	polled = 1000
)

// LaneTopic is a topic of a lane, whose positions a Reader asks for. Kind is TopicMain or
// another one; Group is who reads it, empty = nobody.
type LaneTopic struct{ Lane, Kind, Topic, Group string }

// Reader fills a Feed from Kafka: events from push.events, which it reads without a
// group, and positions of the lanes' groups. It needs the rights to read push.events and
// to describe the topics and groups, and changes nothing.
type Reader struct {
	Feed   *Feed
	Kafka  kafka.Options
	Topics []LaneTopic
	Log    *slog.Logger
}

// Run reads until ctx ends. What Kafka does not answer is asked again; meanwhile the feed
// says how old it is. The error is one of the options.
func (r *Reader) Run(ctx context.Context) error {
	admin, err := kafka.NewAdmin(r.Kafka)
	if err != nil {
		return err
	}
	defer admin.Close()
	follower, err := kafka.NewFollower(r.Kafka, kafka.EventsTopic, nil)
	if err != nil {
		return err
	}
	defer follower.Close()
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { r.ask(ctx, admin) })
	r.read(ctx, follower)
	return nil
}

// ask asks for positions until ctx ends.
func (r *Reader) ask(ctx context.Context, admin *kafka.Admin) {
	var names []string
	groups := make(map[string]string, len(r.Topics))
	for _, t := range r.Topics {
		names = append(names, t.Topic)
		groups[t.Topic] = t.Group
	}
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, patience)
		standings, err := admin.Standings(asking, names, groups)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.Feed.NoPositions("Kafka does not tell its offsets", time.Now())
			r.Log.Warn("the dashboard's positions", "error", err)
		default:
			r.Feed.Positions(r.positions(standings), time.Now())
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (r *Reader) positions(standings []kafka.Standing) []Position {
	list := make([]Position, 0, len(standings))
	for i := range standings {
		p := &standings[i]
		for _, t := range r.Topics {
			if t.Topic == p.Topic {
				list = append(list, Position{Lane: t.Lane, Kind: t.Kind, Topic: t.Topic, Partition: p.Partition, Start: p.Start, End: p.End, Committed: p.Committed, Unknown: p.Err != nil})
			}
		}
	}
	return list
}

// read reads events until ctx ends: the last hour first, which is repeated if it fails,
// as copies change nothing.
func (r *Reader) read(ctx context.Context, f *kafka.Follower) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, patience) {
		err := r.readPast(ctx, f)
		if err == nil {
			r.Feed.Ready()
			err = r.follow(ctx, f)
		}
		if ctx.Err() != nil {
			return
		}
		r.Log.Warn("the dashboard's events", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// readPast reads the events of the last hour, and then makes the follower go on.
func (r *Reader) readPast(ctx context.Context, f *kafka.Follower) error {
	since := time.Now().Add(-past)
	extent, err := f.Extent(ctx, since, time.Time{})
	if err != nil {
		return err
	}
	if err := f.ReadExtent(ctx, extent, func(rec kafka.Record) error {
		r.take(rec, earlier(rec.Timestamp, time.Now()))
		return nil
	}); err != nil {
		return err
	}
	ends := make(map[int32]int64, len(extent))
	for partition, span := range extent {
		ends[partition] = span.To
	}
	f.Seek(ends)
	return nil
}

// earlier is when a record of the past was heard: by its own time, which is that of its
// writer's clock, and never in the future, from which the feed would not come back.
func earlier(told, now time.Time) time.Time {
	if told.After(now) {
		return now
	}
	return told
}

// follow reads what comes, until an error.
func (r *Reader) follow(ctx context.Context, f *kafka.Follower) error {
	for {
		records, err := f.Poll(ctx, polled)
		now := time.Now()
		for _, rec := range records {
			r.take(rec, now)
		}
		if err != nil {
			return fmt.Errorf("following push.events: %w", err)
		}
	}
}

func (r *Reader) take(rec kafka.Record, at time.Time) {
	e, err := events.Parse(rec.Value)
	if err != nil {
		r.Feed.PassOver()
		return
	}
	r.Feed.Add(e, at)
}
