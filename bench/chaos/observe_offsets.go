//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
)

// sampler asks ten times a second what is committed of every partition, and at
// once whether what was passed since has a durable outcome.
type sampler struct {
	client  *kgo.Client
	admin   *kadm.Client
	topic   string
	groups  [2]string // of the lane's own topic, and of its retry, deferral and hold topics
	ledger  *ledger
	status  *statusReader
	intents bool // a durable intent is enough

	judged map[invariants.Partition]int64   // up to where the status was read; touched by run only, as open and topics
	open   map[invariants.Partition][]int64 // offsets before that without a durable outcome, which no sample tells yet
	topics []string

	mu      sync.Mutex
	samples []invariants.Sample                        // guarded by mu
	latest  map[invariants.Partition]invariants.Sample // guarded by mu
	pass    int                                        // guarded by mu; how often all was asked
	asking  error                                      // guarded by mu; why the last one failed
	looked  time.Time                                  // guarded by mu; when the newest sample began of which all was read
}

func newSampler(w *world, l *ledger, r *statusReader, groups [2]string, topic string) (*sampler, error) {
	client, err := w.kafkaClient(kgo.RequestRetries(0), kgo.RetryTimeout(2*time.Second), kgo.MetadataMinAge(time.Second))
	if err != nil {
		return nil, fmt.Errorf("sampler: %w", err)
	}
	return &sampler{client: client, admin: kadm.NewClient(client), topic: topic, groups: groups, ledger: l, status: r,
		judged: map[invariants.Partition]int64{}, open: map[invariants.Partition][]int64{}, latest: map[invariants.Partition]invariants.Sample{}}, nil
}

// samplePause is the time from one sample to the next.
const samplePause = 100 * time.Millisecond

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	ticker := time.NewTicker(samplePause)
	defer ticker.Stop()
	for {
		if err := s.sample(ctx); ctx.Err() == nil {
			s.mu.Lock()
			s.asking = err
			s.mu.Unlock()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// How long a sample's questions may take, and each part of what is read. What an outage
// has left to be read can be much, and ids of fan-outs lie far apart in the store: it is
// read in parts, and a part that was read stays so.
const (
	askTimeout  = 3 * time.Second
	lookTimeout = 20 * time.Second
	lookAtOnce  = 200 // records
)

// sample asks once. What is committed is asked before the ends: so a lag of zero
// is one that was. What was passed is read last, so that nothing of that is
// thrown away when another question fails.
func (s *sampler) sample(ctx context.Context) error {
	began := time.Now()
	committed, ends, err := s.ask(ctx)
	if err != nil {
		return err
	}
	asked := time.Now()
	unsettled, err := s.look(ctx, committed)
	looked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	ends.Each(func(e kadm.ListedOffset) {
		p := invariants.Partition{Topic: e.Topic, ID: e.Partition}
		sample := invariants.Sample{At: asked, Partition: p, Committed: committed[p], End: e.Offset, Waits: e.Topic != s.topic}
		if err == nil && e.Topic == s.topic {
			sample.Looked, sample.Unsettled = looked, unsettled[p]
		}
		s.samples = append(s.samples, sample)
		s.latest[p] = sample
	})
	s.pass++
	if err == nil {
		s.looked = began
	}
	return nil
}

// ask reads what is committed, and the ends.
func (s *sampler) ask(ctx context.Context) (committed map[invariants.Partition]int64, ends kadm.ListedOffsets, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	committed = map[invariants.Partition]int64{}
	for _, group := range s.groups {
		offsets, err := s.admin.FetchOffsets(ctx, group)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, nil, fmt.Errorf("asking what %s has committed: %w", group, err)
		}
		for topic, list := range offsets {
			for id, o := range list {
				if o.Err != nil {
					return nil, nil, fmt.Errorf("asking what %s has committed: %w", group, o.Err)
				}
				committed[invariants.Partition{Topic: topic, ID: id}] = max(0, o.At)
			}
		}
	}
	if s.topics == nil { // they are all made before the run
		topics, err := laneTopics(ctx, s.admin, s.topic)
		if err != nil {
			return nil, nil, err
		}
		s.topics = append(topics[waiting], s.topic)
	}
	ends, err = s.admin.ListEndOffsets(ctx, s.topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("asking for the ends of the topics: %w", err)
	}
	return committed, ends, nil
}

// look reads the status of every record that a commit has passed and that was
// not read yet. After an error what was not reached stays to be read.
func (s *sampler) look(ctx context.Context, committed map[invariants.Partition]int64) (unsettled map[invariants.Partition][]int64, err error) {
	var records []invariants.Produced // of each partition in the order of their offsets
	patience := time.Now().Add(time.Second)
	for p, to := range committed {
		if p.Topic != s.topic {
			continue
		}
		// A record can be consumed before its producer has read the
		// acknowledgement.
		list, all := s.ledger.at(p, s.judged[p], to)
		for ; !all && time.Now().Before(patience); list, all = s.ledger.at(p, s.judged[p], to) {
			time.Sleep(time.Millisecond)
		}
		if !all {
			return nil, fmt.Errorf("%s/%d is committed to %d, and not all before that is acknowledged", p.Topic, p.ID, to)
		}
		records = append(records, list...)
	}
	for part := range slices.Chunk(records, lookAtOnce) {
		if err := s.lookAt(ctx, part); err != nil {
			return nil, err
		}
	}
	for p, to := range committed {
		s.judged[p] = max(s.judged[p], to) // the last of them may be marks of transactions
	}
	unsettled, s.open = s.open, map[invariants.Partition][]int64{}
	return unsettled, nil
}

// lookAt reads the status of some records, and notes up to where that is done.
func (s *sampler) lookAt(ctx context.Context, records []invariants.Produced) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	ids := make([]string, len(records))
	for i := range records {
		ids[i] = records[i].ID
	}
	rows, err := s.status.of(ctx, ids)
	if err != nil {
		return err
	}
	for i := range records {
		r := &records[i]
		if !invariants.Settled(rows[r.ID], r.Devices, s.intents) {
			s.open[r.Partition] = append(s.open[r.Partition], r.Offset)
		}
		s.judged[r.Partition] = r.Offset + 1
	}
	return nil
}

// awaitLook waits until everything is read that was passed by now.
func (s *sampler) awaitLook(ctx context.Context) error {
	for from := time.Now(); ; {
		s.mu.Lock()
		looked, asking := s.looked, s.asking
		s.mu.Unlock()
		if looked.After(from) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("reading the status of what is committed: %w", errors.Join(context.Cause(ctx), asking))
		}
		hold(ctx, samplePause/5)
	}
}

// lag is how many records are not committed, by the newest sample, and how many
// samples there are.
func (s *sampler) lag() (lag int64, pass int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sample := range s.latest {
		lag += sample.End - sample.Committed
	}
	return lag, s.pass, s.asking
}

// committed is how many records are committed, by the newest sample.
func (s *sampler) committed() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sample := range s.latest {
		n += sample.Committed
	}
	return n
}

// behind names the partitions with lag.
func (s *sampler) behind() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var late []string
	for p, sample := range s.latest {
		if sample.End != sample.Committed {
			late = append(late, fmt.Sprintf("%s/%d is committed to %d of %d", p.Topic, p.ID, sample.Committed, sample.End))
		}
	}
	return strings.Join(late, ", ")
}

// close ends the clients and seals the ledger.
func (s *sampler) close() invariants.Ledger[invariants.Sample] {
	s.client.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking != nil {
		return invariants.Ledger[invariants.Sample]{Entries: s.samples, Missing: s.asking.Error()}
	}
	return invariants.Seal(s.samples)
}
