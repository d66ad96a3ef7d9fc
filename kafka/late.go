package kafka

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// late counts records whose callers have gone before there was a result: what is being
// written cannot be withdrawn (F17), and may stay with the client for as long as a topic
// takes nothing. It is safe for concurrent use.
type late struct {
	mu sync.Mutex
	of map[string]int // guarded by mu; by topic
}

func (l *late) add(topic string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[topic] += n; l.of[topic] == 0 {
		delete(l.of, topic)
	}
}

func (l *late) has(topic string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[topic] > 0
}

// errLate is the result of what is not written because former records are still on their
// way to the topic.
var errLate = errors.New("no answer yet to what was written before")

// sendTimely sends the records of hand-overs. What senders are told is repeated with a
// time-out, so nothing more of it goes to a topic that has not answered the last time: the
// client would keep all of them.
func (p *Producer) sendTimely(ctx context.Context, records []*kgo.Record, hs []pipeline.Handover) []error {
	results, timely, places := make([]error, len(records)), make([]*kgo.Record, 0, len(records)), make([]int, 0, len(records))
	for i, r := range records {
		if to := hs[i].To; (to == pipeline.ToEnds || to == pipeline.ToDeadEnds) && p.late.has(r.Topic) {
			results[i] = errLate
			continue
		}
		timely, places = append(timely, r), append(places, i)
	}
	for n, err := range p.send(ctx, timely) {
		results[places[n]] = err
	}
	return results
}

// send produces and waits until each record has its result, or ctx ends: then that is the
// result of those that have none. Such a record may arrive later.
func (p *Producer) send(ctx context.Context, records []*kgo.Record) []error {
	if len(records) == 0 {
		return nil
	}
	var (
		mu            sync.Mutex
		results, done = make([]error, len(records)), make(chan struct{}) // results is guarded by mu until all are there
		has, left     = make([]bool, len(records)), len(records)         // guarded by mu
		gone          bool                                               // guarded by mu
	)
	for i, r := range records {
		p.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if gone {
				p.late.add(r.Topic, -1)
				return
			}
			results[i], has[i] = err, true
			if left--; left == 0 {
				close(done)
			}
		})
	}
	select {
	case <-done:
		return results
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	gone = true
	for i, r := range records {
		if !has[i] {
			results[i] = ctx.Err()
			p.late.add(r.Topic, 1)
		}
	}
	return results
}
