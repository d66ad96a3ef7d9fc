package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// fleetOfOne is a partition, its group, its status rows and push.events, and owners that
// take turns: killed at any point of a commit, or drained.
type fleetOfOne struct {
	t   *testing.T
	rng *rand.Rand
	at  push.Partition

	offsets []int64             // of the log, ascending
	states  []push.State        // what each record comes to; 0 = a copy of an earlier one
	rows    map[int64]bool      // offsets whose row is durable
	topic   [][]byte            // push.events
	stand   stand               // what the group has committed
	fail    func() (bool, bool) // of a produce: before it is written, after it

	once   bool // intents are committed before they are sent
	source *Source
	own    *assignment
	teller *events.Teller
	events *events.Collector
	open   []*pipeline.Item // admitted and not done
	sent   []*pipeline.Item // once: intended
	next   int              // in offsets
}

func newFleetOfOne(t *testing.T, seed uint64, once bool) *fleetOfOne {
	f := &fleetOfOne{t: t, rng: rand.New(rand.NewPCG(seed, 7)), at: push.Partition{Topic: "push.critical", ID: 3}, once: once,
		rows: make(map[int64]bool), stand: stand{committed: -1, unresolved: -1}, fail: func() (bool, bool) { return false, false }}
	return f
}

var errRefused = errors.New("refused")

// begin makes a new owner, which knows what the group has committed.
func (f *fleetOfOne) begin() {
	f.events = events.New(fmt.Sprint(f.rng.Uint64()), time.Unix(0, 0))
	f.teller = f.events.Teller("critical", func(_ context.Context, records [][]byte) error {
		before, after := f.fail()
		if before {
			return errRefused
		}
		f.topic = append(f.topic, records...)
		if after {
			return errRefused
		}
		return nil
	})
	so := SourceOptions{Topics: []SourceTopic{{Name: f.at.Topic}}, Group: "g", BatchRecords: 10, OpenBatches: 4,
		Tell: func(ctx context.Context, ranges []pipeline.Range) { f.teller.Tell(ctx, ranges, time.Unix(100, 0)) }}
	if f.once {
		so.Reread = 10
	}
	f.source = newSource(so.withDefaults(), slog.New(slog.DiscardHandler))
	f.own = f.source.newAssignment(f.at)
	f.source.parts[f.at] = f.own
	f.open, f.sent, f.next = nil, nil, 0
	from := f.offsets[0]
	if f.stand.committed >= 0 {
		from = f.own.begin(f.stand, 0)
	}
	for f.next < len(f.offsets) && f.offsets[f.next] < from {
		f.next++
	}
}

// poll admits some records. What has its row was ended by a former owner.
func (f *fleetOfOne) poll(n int) {
	if n = min(n, len(f.offsets)-f.next, f.own.tracker.Free()); n <= 0 {
		return
	}
	b := &pipeline.Batch{Partition: f.at, Tracker: f.own.tracker, Items: make([]pipeline.Item, n)}
	for i := range b.Items {
		b.Items[i] = pipeline.Item{Message: push.Message{ID: fmt.Sprint(f.offsets[f.next])}, Partition: f.at, Offset: f.offsets[f.next]}
		f.next++
	}
	f.own.markReread(b.Items)
	f.own.tracker.Admit(b)
	for i := range b.Items {
		f.open = append(f.open, &b.Items[i])
	}
}

// state is what the record at an offset comes to.
func (f *fleetOfOne) state(offset int64) push.State {
	for i, o := range f.offsets {
		if o == offset {
			return f.states[i]
		}
	}
	f.t.Fatalf("no record at %d", offset)
	return 0
}

// end makes the outcome of some items durable; some of them are done then, and others only
// have their rows.
func (f *fleetOfOne) end(n int, done bool) {
	f.rng.Shuffle(len(f.open), func(i, j int) { f.open[i], f.open[j] = f.open[j], f.open[i] })
	for range min(n, len(f.open)) {
		it := f.open[0]
		state := f.state(it.Offset)
		if f.once && !it.Reread && state != 0 && !f.rows[it.Offset] { // it is sent in its turn
			f.open = append(f.open[1:], it)
			continue
		}
		f.rows[it.Offset] = true
		if !done {
			continue
		}
		f.open = f.open[1:]
		f.finish(it, state)
	}
}

func (f *fleetOfOne) finish(it *pipeline.Item, state push.State) {
	g := f.events.Group("critical")
	it.Came = []*pipeline.Kind{g.Kind(it, push.NoPlatform, state, "")}
	f.own.tracker.Done([]*pipeline.Item{it})
}

// intend intends all that is to be sent, if nothing is sent.
func (f *fleetOfOne) intend() {
	if !f.once || len(f.sent) > 0 {
		return
	}
	var rest []*pipeline.Item
	for _, it := range f.open {
		if it.Reread {
			rest = append(rest, it)
		} else {
			f.sent = append(f.sent, it)
		}
	}
	f.open = rest
	f.own.tracker.Intend(f.sent)
}

// answer gives some of what is sent its result.
func (f *fleetOfOne) answer(n int, done bool) {
	for range min(n, len(f.sent)) {
		it := f.sent[0]
		f.rows[it.Offset] = true
		if !done {
			return
		}
		f.sent = f.sent[1:]
		f.finish(it, f.state(it.Offset))
	}
}

// commit commits as a Source does, up to a point, at which the owner is killed; 4 = to its
// end. It reports whether there is more.
func (f *fleetOfOne) commit(point int) (more bool) {
	s := f.source
	moved, _, telling := s.moved()
	if len(moved) == 0 || point == 0 {
		return false
	}
	s.tell(f.t.Context(), telling.ranges)
	if point == 1 {
		return false
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	topic, part := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = f.at.ID, moved[f.at.Topic][f.at.ID].Offset
	topic.Topic, topic.Partitions = f.at.Topic, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	if f.once {
		s.noteUnresolved(req)
	}
	at := stand{committed: part.Offset, unresolved: -1}
	if m := req.Topics[0].Partitions[0].Metadata; m != nil {
		at.unresolved = parseUnresolved(*m)
	}
	if point == 2 { // Kafka has not taken it
		return false
	}
	if at.committed < f.stand.committed {
		f.t.Fatalf("commits %d after %d", at.committed, f.stand.committed)
	}
	f.stand = at
	if point == 3 { // it has, and nobody knows
		return false
	}
	s.noteCommits(moved, nil)
	return telling.more
}

// finishAll ends everything, and tells it.
func (f *fleetOfOne) finishAll() {
	f.fail = func() (bool, bool) { return false, false }
	for range 10 * len(f.offsets) {
		f.poll(7)
		f.end(100, true)
		f.intend()
		f.answer(100, true)
		for f.commit(4) {
		}
		if f.next == len(f.offsets) && len(f.open)+len(f.sent) == 0 {
			if err := f.teller.Retry(f.t.Context()); err != nil {
				f.t.Fatal(err)
			}
			return
		}
	}
	f.t.Fatal("does not come to its end")
}

// told is what a reader counts, how many offsets it knows to be missing, and the
// offsets from the first that was told to the last: of what is beyond them it knows
// nothing.
func (f *fleetOfOne) told() (counts map[string]int64, missing, from, to int64) {
	var tally events.Tally
	from = -1
	counts = make(map[string]int64)
	for _, record := range f.topic {
		e, err := events.Parse(record)
		if err != nil {
			f.t.Fatal(err)
		}
		if from < 0 {
			from = e.Ranges.Of[0].From
		}
		for _, r := range e.Ranges.Of {
			to = max(to, r.To)
		}
		tally.Add(e, func(c *events.Count, _ time.Time) {
			if counts[c.State] += c.N; counts[c.State] == 0 {
				delete(counts, c.State)
			}
		})
	}
	return counts, tally.Missing(), from, to
}

// truth is what there is to count of the offsets from one to another.
func (f *fleetOfOne) truth(from, to int64) (counts map[string]int64, records int64) {
	counts = make(map[string]int64)
	for i, s := range f.states {
		if f.offsets[i] < from || f.offsets[i] >= to {
			continue
		}
		records++
		if s == 0 {
			counts["DUPLICATE"]++
		} else {
			counts[s.String()]++
		}
	}
	return counts, records
}

// Owners are killed at every point of a commit, drained, refused by push.events and left
// in doubt by it. Every record is counted once, as what it came to; where a range was
// committed and its owner died before push.events took it, a reader knows how many.
func TestRangesCountEveryRecordOnce(t *testing.T) {
	for _, once := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			for seed := range uint64(400) {
				f := newFleetOfOne(t, seed, once)
				offset := f.rng.Int64N(3)
				for range 60 + f.rng.IntN(60) {
					f.offsets = append(f.offsets, offset)
					f.states = append(f.states, []push.State{push.StateDelivered, push.StateDelivered, push.StateFailed, push.StateRetrying, 0}[f.rng.IntN(5)])
					offset++
					if !fails && f.rng.IntN(5) == 0 {
						offset += f.rng.Int64N(4) // compacted
					}
				}
				if fails {
					f.fail = func() (bool, bool) { return f.rng.IntN(3) == 0, f.rng.IntN(4) == 0 }
				}
				f.begin()
				for range 150 {
					switch f.rng.IntN(12) {
					case 0, 1, 2:
						f.poll(1 + f.rng.IntN(12))
					case 3, 4:
						f.end(f.rng.IntN(12), true)
					case 5:
						f.end(1, false)
					case 6:
						f.intend()
					case 7:
						f.answer(f.rng.IntN(12), f.rng.IntN(3) > 0)
					case 8, 9:
						for f.commit(4) && f.rng.IntN(4) > 0 {
						}
					case 10:
						f.commit(3) // in doubt: the owner goes on
					case 11:
						if point := f.rng.IntN(8); point < 5 { // killed
							f.commit(point)
							f.begin()
						}
					}
				}
				f.finishAll()
				got, missing, from, to := f.told()
				want, records := f.truth(from, to)
				if missing == 0 && !maps.Equal(got, want) || !fails && (missing > 0 || from > 0 || to <= f.offsets[len(f.offsets)-1]) {
					t.Fatalf("once %v, fails %v, seed %d: counted %v, want %v; %d missing, from %d", once, fails, seed, got, want, missing, from)
				}
				var sum int64
				for state, n := range got {
					if sum += n; n > want[state] {
						t.Fatalf("once %v, fails %v, seed %d: counted %v of %v", once, fails, seed, got, want)
					}
				}
				if fails && f.offsets[0] == 0 && sum != records-missing {
					t.Fatalf("once %v, fails %v, seed %d: counted %d of %d, %d known to be missing", once, fails, seed, sum, records, missing)
				}
			}
		}
	}
}
