package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
)

const (
	// past is how far back events are read when a Reader begins: what totals keep. An hour
	// of 18 workers is 65,000 records, which are read in seconds.
	past = time.Hour
	// jobsPast is how far back fan-outs are read: few are open for longer.
	jobsPast = 24 * time.Hour
	// askEvery is how often positions are asked for.
	askEvery = time.Second
	// patience bounds one question, and is the longest pause after one that failed.
	patience = 10 * time.Second
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
	// Fanouts says that there are fan-outs, whose topic is read too, of the last day.
	Fanouts bool
	Log     *slog.Logger
}

// tail is a topic that is read from some time ago on, and then as it grows.
type tail struct {
	*kafka.Follower
	past time.Duration
	take func(rec kafka.Record, at time.Time)
	read func()          // the past has been read; may be called again
	next map[int32]int64 // by partition: what is before it was taken
}

// Run reads until ctx ends. What Kafka does not answer is asked again; meanwhile the feed
// says how old it is. The error is one of the options.
func (r *Reader) Run(ctx context.Context) error {
	admin, err := kafka.NewAdmin(r.Kafka)
	if err != nil {
		return err
	}
	defer admin.Close()
	tails := []tail{{past: past, take: r.take, read: r.Feed.Ready}}
	topics := []string{kafka.EventsTopic}
	if r.Fanouts {
		tails, topics = append(tails, tail{past: jobsPast, take: r.takeJob, read: func() {}}), append(topics, fanout.JobsTopic)
	}
	for i, topic := range topics {
		tails[i].next = make(map[int32]int64)
		if tails[i].Follower, err = kafka.NewFollower(r.Kafka, topic, nil); err != nil {
			return err
		}
		defer tails[i].Close()
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { r.ask(ctx, admin) })
	for i := range tails {
		reading.Go(func() { r.read(ctx, &tails[i]) })
	}
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

// read reads a topic until ctx ends: the past first, also after what fails, but for what
// was taken of it.
func (r *Reader) read(ctx context.Context, t *tail) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, patience) {
		err := t.readPast(ctx)
		if err == nil {
			t.read()
			err = t.follow(ctx)
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

// readPast reads the past, and then makes the follower go on.
func (t *tail) readPast(ctx context.Context) error {
	since := time.Now().Add(-t.past)
	extent, err := t.Extent(ctx, since, time.Time{})
	if err != nil {
		return err
	}
	for partition, span := range extent {
		if span.To < t.next[partition] { // the topic was made anew
			delete(t.next, partition)
		}
		span.From = min(max(span.From, t.next[partition]), span.To)
		extent[partition] = span
	}
	if err := t.ReadExtent(ctx, extent, func(rec kafka.Record) error {
		t.taken(rec, earlier(rec.Timestamp, time.Now()))
		return nil
	}); err != nil {
		return err
	}
	ends := make(map[int32]int64, len(extent))
	for partition, span := range extent {
		ends[partition] = span.To
	}
	t.Seek(ends)
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

// follow reads what comes, also in partitions that are added, until the error that it returns.
func (t *tail) follow(ctx context.Context) error {
	return fmt.Errorf("following a topic: %w", t.Follow(ctx, func(rec kafka.Record) error {
		t.taken(rec, time.Now())
		return nil
	}))
}

// taken takes a record that was heard at a time.
func (t *tail) taken(rec kafka.Record, at time.Time) {
	t.next[rec.Partition] = rec.Offset + 1
	t.take(rec, at)
}

func (r *Reader) take(rec kafka.Record, at time.Time) {
	e, err := events.Parse(rec.Value)
	if err != nil {
		r.Feed.PassOver()
		return
	}
	r.Feed.Add(e, at)
}

// takeJob takes a message for many receivers. What is none is for those who work on it to
// complain of.
func (r *Reader) takeJob(rec kafka.Record, _ time.Time) {
	if j, err := fanout.DecodeJob(rec.Value); err == nil {
		r.Feed.AddFanout(j)
	}
}
