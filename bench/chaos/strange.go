//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chaos/records"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/crowd"
)

// strangers append records over the whole input space of Kafka beside those of
// the crowd, and say in the producer's ledger what must become of them.
type strangers struct {
	world    *world
	producer *producer
	users    []int // of the crowd, by the generator's index
	made     *records.Generator
	draw     *rand.Rand
	share    float64

	plain   *kgo.Client                 // keeps the order of what it appends
	whole   *transactions               // of what is appended in them; nil = nothing
	hollow  *hollow                     // nil = no marks between what is appended
	packing [records.Codecs]*kgo.Client // by codec; a batch of one record at a time
	queue   chan appended               // of what needs a batch of its own
	alone   sync.WaitGroup
}

// The largest batch, unpacked, that a bomb has; brokers take 4 MiB of it packed.
const largestBatch = 80 << 20

// newStrangers makes those who append a share of a run's records.
func newStrangers(ctx context.Context, w *world, p *producer, seed uint64) (s *strangers, err error) {
	s = &strangers{world: w, producer: p, share: w.scenario.strange, draw: rand.New(rand.NewPCG(seed, 0x7374)), queue: make(chan appended, 100_000), plain: p.client}
	o := records.Options{App: fleet.App, GreatestAge: w.fleet.Config.Lanes[0].GreatestAge, Bombs: w.scenario.bombs}
	for i := range w.people.Users {
		if u := w.people.User(i); u.Kind == crowd.Plain {
			s.users = append(s.users, i)
			o.Users = append(o.Users, records.User{ID: u.ID})
		}
	}
	if s.made, err = records.New(o, rand.NewPCG(seed, 0x72656373)); err != nil {
		return nil, err
	}
	codecs := [records.Codecs]kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		s.packing[i], err = w.kafkaClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(codec),
			kgo.ProducerBatchMaxBytes(largestBatch))
		if err != nil {
			s.close()
			return nil, fmt.Errorf("strangers: %w", err)
		}
	}
	if w.scenario.transactions {
		if s.whole, err = newTransactions(w, s, seed); err != nil {
			s.close()
			return nil, err
		}
	}
	if w.scenario.hollow {
		if s.hollow, err = newHollow(ctx, w, s, seed); err != nil {
			s.close()
			return nil, err
		}
	}
	s.alone.Go(func() {
		for a := range s.queue {
			got, err := s.packing[a.Codec].ProduceSync(ctx, s.record(&a.Record)).First()
			s.acknowledged(&a, got, err)
		}
	})
	return s, nil
}

// turn reports whether the next record is theirs.
func (s *strangers) turn() bool { return s != nil && s.draw.Float64() < s.share }

// appended is a record and when it was made up, which its timestamp need not
// tell.
type appended struct {
	records.Record
	at time.Time
}

// next makes up a record.
func (s *strangers) next() appended {
	now := time.Now()
	return appended{s.made.Next(now), now}
}

// append makes up a record and appends it.
func (s *strangers) append(ctx context.Context) {
	a := s.next()
	if a.Alone || a.Codec != records.Unpacked {
		s.queue <- a
		return
	}
	if s.whole != nil {
		if err := s.whole.add(ctx, a); err != nil {
			s.failed(err)
		}
		return
	}
	s.plain.Produce(ctx, s.record(&a.Record), func(got *kgo.Record, err error) { s.acknowledged(&a, got, err) })
}

// failed makes the producer's ledger incomplete.
func (s *strangers) failed(err error) {
	s.producer.mu.Lock()
	defer s.producer.mu.Unlock()
	s.producer.err = errors.Join(s.producer.err, err)
}

func (s *strangers) record(r *records.Record) *kgo.Record {
	k := &kgo.Record{Topic: fleet.Topic, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Millis)}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return k
}

func (s *strangers) acknowledged(r *appended, got *kgo.Record, err error) {
	p := s.producer
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("%s: %w", r.Kind, err))
		return
	}
	p.keep(s.entry(r, got))
}

// states are the checker's words for the generator's.
var states = map[records.Outcome]invariants.State{records.Delivered: invariants.Delivered, records.Failed: invariants.Failed,
	records.Expired: invariants.Expired, records.DeadLettered: invariants.DeadLettered}

// entry is what the ledger says of a record. The producer's mutex is held.
func (s *strangers) entry(r *appended, got *kgo.Record) invariants.Produced {
	want := &r.Want
	e := invariants.Produced{ID: want.ID, Partition: invariants.Partition{Topic: got.Topic, ID: got.Partition}, Offset: got.Offset,
		At: r.at, Copy: want.Copy, Unsent: want.Outcome != records.Delivered, Deadline: want.Expires, Kind: r.Kind, Reason: want.Reason, Textless: want.Textless}
	if e.ID == "" {
		e.ID = records.PlaceID(got.Topic, got.Partition, got.Offset)
	}
	if want.Copy {
		e.Unsent = false // of its notification
		return e
	}
	e.Outcomes = []invariants.Outcome{invariants.Outcome(states[want.Outcome])}
	if want.Outcome == records.Delivered {
		e.Devices = s.producer.devicesOf(s.users[want.User])
		if s.producer.again {
			e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.DeadLettered), invariants.Outcome(invariants.Expired))
		}
	}
	if s.producer.once {
		e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.Unknown))
	}
	return e
}

// flush waits until all is acknowledged, and nothing more may be appended.
func (s *strangers) flush(ctx context.Context) error {
	if s == nil {
		return nil
	}
	close(s.queue)
	s.alone.Wait()
	if s.hollow != nil {
		return errors.Join(context.Cause(ctx), s.hollow.end(ctx))
	}
	if s.whole == nil {
		return context.Cause(ctx)
	}
	return errors.Join(context.Cause(ctx), s.whole.end(ctx), s.whole.cover(ctx))
}

func (s *strangers) close() {
	if s == nil {
		return
	}
	for _, c := range slices.Compact(s.packing[:]) {
		if c != nil {
			c.Close()
		}
	}
	if s.whole != nil {
		s.whole.close()
	}
	if s.hollow != nil {
		s.hollow.close()
	}
}
