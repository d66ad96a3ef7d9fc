//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// producer appends made-up records to the lane's topic, and writes down each
// one that Kafka has acknowledged, with its place: in memory, and line by line
// in a file that outlives a crash of the run.
type producer struct {
	*ledger
	client *kgo.Client
	others *strangers // who append beside the crowd; nil = nobody
	weight int        // bytes that are added to each record
}

// largestRecord is what a record may have: more than the broker's default lets in.
const largestRecord = 1 << 20

func newProducer(w *world, l *ledger) (*producer, error) {
	client, err := w.kafkaClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchMaxBytes(largestRecord), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	return &producer{ledger: l, client: client, weight: w.scenario.weight}, nil
}

// tick is how often the producer catches up with its rate.
const tick = 20 * time.Millisecond

// run produces n records at a rate and returns when all are acknowledged. A
// Kafka that is away is waited for; what should have been produced meanwhile
// comes at once when it is back.
func (p *producer) run(ctx context.Context, n, rate int) error {
	g := p.people.Records()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began := time.Now()
	for done := 0; done < n; {
		due := min(n, int(time.Since(began).Seconds()*float64(rate)))
		for ; done < due; done++ {
			if p.others.turn() {
				p.others.append(ctx)
			} else {
				p.produce(ctx, g.Next(time.Now()))
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.Join(p.client.Flush(ctx), p.others.flush(ctx))
}

func (p *producer) produce(ctx context.Context, r crowd.Record) {
	r.Value = heavier(r.Value, p.weight)
	p.client.Produce(ctx, &kgo.Record{Topic: fleet.Topic, Key: r.Key, Value: r.Value}, func(rec *kgo.Record, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.err = errors.Join(p.err, err) // nobody knows whether it is in the topic
			return
		}
		p.note(r, rec)
	})
}

// heavier adds bytes to a record that no worker reads, but has to fetch: a
// member of its object that nobody knows. What is no object stays.
func heavier(value []byte, by int) []byte {
	head, ok := bytes.CutSuffix(value, []byte("}"))
	if by == 0 || !ok || !json.Valid(value) {
		return value
	}
	return slices.Concat(head, []byte(`,"ballast":"`), bytes.Repeat([]byte("x"), by), []byte(`"}`))
}

// note writes an acknowledged record down. It is called with mu held.
func (p *producer) note(r crowd.Record, rec *kgo.Record) {
	p.size += int64(len(r.Value))
	e := invariants.Produced{ID: r.ID, Partition: invariants.Partition{Topic: rec.Topic, ID: rec.Partition}, Offset: rec.Offset, At: rec.Timestamp}
	if e.ID == "" {
		// It cannot be used, but its id may be: the decoder is the referee, which
		// has tests of its own. Without one it has the name of its place.
		var m push.Message
		decode.Message(r.Value, &m)
		if e.ID = strings.Clone(m.ID); e.ID == "" {
			e.ID = push.PlaceID(rec.Topic, rec.Partition, rec.Offset)
		}
	}
	var times struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	if json.Unmarshal(r.Value, &times) == nil {
		e.Deadline = times.ExpiresAt
	}
	p.expect(&e, r.User, r.Fate)
	p.keep(e)
}

// close ends the producer.
func (p *producer) close() {
	p.client.Close()
	p.others.close()
}
