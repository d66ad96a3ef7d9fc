//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
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
	client *kgo.Client
	people *crowd.Crowd
	file   *os.File
	again  bool       // see Scenario.again
	once   bool       // the lane sends at most once
	others *strangers // who append beside the crowd; nil = nobody
	weight int        // bytes that are added to each record

	mu      sync.Mutex
	out     *bufio.Writer                          // guarded by mu, as all that follows
	entries []invariants.Produced                  //
	byPlace map[invariants.Partition]map[int64]int // index in entries
	marks   map[invariants.Partition][]int64       // of transactions: offsets that no record has
	devices map[int][]string                       // of users
	size    int64                                  // bytes of all values
	err     error                                  // the first that makes the ledger incomplete
}

// largestRecord is what a record may have: more than the broker's default lets in.
const largestRecord = 1 << 20

func newProducer(w *world, path string) (*producer, error) {
	client, err := w.kafkaClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchMaxBytes(largestRecord), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("producer's ledger: %w", err)
	}
	return &producer{client: client, people: w.people, file: file, again: w.scenario.again, weight: w.scenario.weight, out: bufio.NewWriter(file),
		byPlace: map[invariants.Partition]map[int64]int{}, marks: map[invariants.Partition][]int64{}, devices: map[int][]string{}}, nil
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

// bytes is how much was produced so far.
func (p *producer) bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// note writes an acknowledged record down. It is called with mu held.
func (p *producer) note(r crowd.Record, rec *kgo.Record) {
	p.size += int64(len(r.Value))
	want := fleet.WantOf(r.Fate)
	e := invariants.Produced{ID: r.ID, Partition: invariants.Partition{Topic: rec.Topic, ID: rec.Partition}, Offset: rec.Offset,
		At: rec.Timestamp, App: p.people.AppOf(r.User), Copy: want.Copy, Unsent: want.Unsent}
	if e.ID == "" {
		// It cannot be used, but its id may be: the decoder is the referee, which
		// has tests of its own. Without one it has the name of its place.
		var m push.Message
		decode.Message(r.Value, &m)
		if e.ID = strings.Clone(m.ID); e.ID == "" {
			e.ID = push.PlaceID(rec.Topic, rec.Partition, rec.Offset)
		}
	}
	for _, o := range want.Outcomes {
		e.Outcomes = append(e.Outcomes, outcomes[o])
	}
	if p.once && len(e.Outcomes) > 0 {
		e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.Unknown))
		// Where a user's living device ends UNKNOWN, what the dead one ended as says
		// more of the whole.
		if reaches := r.Fate == crowd.Reaches || r.Fate == crowd.MayExpire; reaches && len(p.people.Targets(r.User).Dead) > 0 {
			e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.Failed), invariants.Outcome(invariants.Suppressed))
		}
	}
	var times struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	if json.Unmarshal(r.Value, &times) == nil {
		e.Deadline = times.ExpiresAt
	}
	if r.Fate == crowd.Reaches || r.Fate == crowd.MayExpire {
		e.Devices = p.devicesOf(r.User)
		if p.again {
			e.Outcomes = append(e.Outcomes, invariants.Outcome(invariants.DeadLettered), invariants.Outcome(invariants.Expired))
		}
	}
	p.keep(e)
}

// keep adds an entry to the ledger. It is called with mu held.
func (p *producer) keep(e invariants.Produced) {
	if p.byPlace[e.Partition] == nil {
		p.byPlace[e.Partition] = map[int64]int{}
	}
	p.byPlace[e.Partition][e.Offset] = len(p.entries)
	p.entries = append(p.entries, e)
	if err := json.NewEncoder(p.out).Encode(&e); err != nil {
		p.err = errors.Join(p.err, err)
	}
}

// noteMark notes the mark of a transaction.
func (p *producer) noteMark(partition invariants.Partition, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks[partition] = append(p.marks[partition], offset)
}

// devicesOf are the devices of a user that must each end: those of users whose
// tokens all live. It is called with mu held.
func (p *producer) devicesOf(user int) []string {
	if hashes, ok := p.devices[user]; ok {
		return hashes
	}
	u := p.people.User(user)
	var hashes []string
	if u.Kind == crowd.Plain {
		for _, d := range u.Devices {
			hashes = append(hashes, d.Hash)
		}
	}
	p.devices[user] = hashes
	return hashes
}

// outcomes are the checker's words for ours.
var outcomes = map[push.Outcome]invariants.Outcome{
	push.OutcomeDelivered: invariants.Outcome(invariants.Delivered), push.OutcomeFailed: invariants.Outcome(invariants.Failed),
	push.OutcomeSuppressed: invariants.Outcome(invariants.Suppressed), push.OutcomeExpired: invariants.Outcome(invariants.Expired),
	push.OutcomeDeadLettered: invariants.Outcome(invariants.DeadLettered), push.OutcomeShed: invariants.Outcome(invariants.Shed),
	push.OutcomeUnknown: invariants.Outcome(invariants.Unknown),
}

// at returns the records of a partition from one offset up to another, as far
// as their acknowledgements have come.
func (p *producer) at(partition invariants.Partition, from, to int64) (list []invariants.Produced, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := from; o < to; o++ {
		i, ok := p.byPlace[partition][o]
		if !ok && slices.Contains(p.marks[partition], o) {
			continue
		}
		if !ok {
			return list, false
		}
		list = append(list, p.entries[i])
	}
	return list, true
}

// idAt is the id of the record at a place.
func (p *producer) idAt(partition invariants.Partition, offset int64) (string, bool) {
	list, _ := p.at(partition, offset, offset+1)
	if len(list) == 0 {
		return "", false
	}
	return list[0].ID, true
}

// close ends the producer and seals its ledger, unless something failed.
func (p *producer) close() invariants.Ledger[invariants.Produced] {
	p.client.Close()
	p.others.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := errors.Join(p.err, p.out.Flush(), p.file.Close()); err != nil {
		return invariants.Ledger[invariants.Produced]{Entries: p.entries, Missing: err.Error()}
	}
	return invariants.Seal(p.entries)
}
