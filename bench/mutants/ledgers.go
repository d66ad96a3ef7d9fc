//go:build unix

package mutants

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/wiring"
)

// harness holds the run against the chaos harness's checker, which shares no
// code with the accounting: the same bugs must be found by both.
func (w *world) harness(ctx context.Context) (*invariants.Report, error) {
	l := &invariants.Ledgers{Sends: w.sends.seal(w.Sim.Ledger().Totals()), Status: invariants.Seal(w.store.rows()),
		Limits: invariants.Limits{Mode: invariants.Mode(w.Config.Lanes[0].Mode), Retries: w.Config.Retries.Max,
			SampleGap: time.Hour, StoreTimes: true, Unobserved: []invariants.Invariant{invariants.I8, invariants.I9, invariants.Bound, invariants.Reasons}}}
	for n, d := range w.deaths {
		// What an earlier death has exposed may not have been settled by then.
		e := invariants.Event{Kind: "kill", Target: "worker", Start: d.at, End: d.at, Repeats: (n + 1) * killBound, Exposed: w.exposed(d), Stalls: true,
			Unknown: w.Config.Kafka.Topics.Partitions * w.Config.Batch.Window()}
		if !d.resumed.IsZero() {
			// A write that it was stopped right before goes out late: the windows
			// are all that is known of that.
			e.Kind, e.End, e.Exposed = "pause", d.resumed, nil
		}
		l.Events = append(l.Events, e)
	}
	l.Events = append(l.Events, w.events...)
	if err := w.readTopics(ctx, l); err != nil {
		return nil, err
	}
	return invariants.Check(l), nil
}

// exposed are the pushes that were accepted and not durably DELIVERED when a
// worker died.
func (w *world) exposed(d killed) map[invariants.Pair]bool {
	pairs := make(map[invariants.Pair]bool)
	for p := range d.accepted {
		if at := w.store.deliveredAt(p.id, p.device); at.IsZero() || at.After(d.at) {
			pairs[invariants.Pair{ID: p.id, Device: p.device}] = true
		}
	}
	return pairs
}

// readTopics fills the producer's ledger, the letters and the offsets.
func (w *world) readTopics(ctx context.Context, l *invariants.Ledgers) error {
	options, err := wiring.Kafka(w.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	var letters []invariants.Letter
	byOrigin, commits := make(map[string]string), w.commits.all()
	l.Producer.Sealed, l.Offsets.Sealed = true, true
	for _, topic := range wiring.TopicNames(w.Config) { // the lane's own is the first
		kind := invariants.KindOf(fleet.Topic, topic)
		if kind == 0 && topic != fleet.Topic {
			continue
		}
		ends := make(map[int32]int64)
		err := fleet.ReadTopic(ctx, options, topic, func(r kafka.Record) {
			ends[r.Partition] = r.Offset + 1
			var m push.Message
			decode.Message(r.Value, &m)
			id, origin := strings.Clone(m.ID), topic+"/"+strconv.Itoa(int(r.Partition))+"/"+strconv.FormatInt(r.Offset, 10)
			if kind != 0 {
				if known := byOrigin[r.Headers["pf-origin"]]; known != "" {
					id = known
				}
				attempt, _ := strconv.Atoi(r.Headers["pf-attempt"])
				letters = append(letters, invariants.Letter{Kind: kind, ID: id, Attempt: attempt, Reason: r.Headers["pf-reason"]})
				return
			}
			if id == "" {
				id = push.PlaceID(topic, r.Partition, r.Offset)
			}
			byOrigin[origin] = id
			p := w.produced(r, id)
			p.Deadline = m.ExpiresAt
			if w.leaves[string(r.Key)] && (p.Deadline.IsZero() || w.left.Before(p.Deadline)) {
				p.Deadline = w.left
			}
			if user, ok := w.people.Find(m.UserID); ok && !p.Unsent {
				w.about(&p, w.people.Targets(user))
			}
			l.Producer.Entries = append(l.Producer.Entries, p)
		})
		if err != nil {
			return err
		}
		if kind == invariants.Dead {
			continue
		}
		if topic == fleet.Topic && w.marks > 0 {
			w.readMarks(l)
		}
		for id, end := range ends {
			p := push.Partition{Topic: topic, ID: id}
			l.Offsets.Entries = append(l.Offsets.Entries, samples(p, commits[p], end, kind != 0)...)
		}
	}
	l.Letters = invariants.Seal(letters)
	return nil
}

// readMarks: what no record has below the last one of a partition is a mark of
// the transactions that were committed, if there are as many.
func (w *world) readMarks(l *invariants.Ledgers) {
	taken, marks, n := make(map[invariants.Partition]map[int64]bool), make(map[invariants.Partition][]int64), 0
	last := make(map[invariants.Partition]int64)
	for _, p := range l.Producer.Entries {
		if taken[p.Partition] == nil {
			taken[p.Partition] = make(map[int64]bool)
		}
		taken[p.Partition][p.Offset] = true
		last[p.Partition] = max(last[p.Partition], p.Offset)
	}
	for p, offsets := range taken {
		for o := range last[p] {
			if !offsets[o] {
				marks[p] = append(marks[p], o)
				n++
			}
		}
	}
	if n == w.marks {
		l.Marks = marks
	}
}

// produced is what was meant by a record of the lane's topic.
func (w *world) produced(r kafka.Record, id string) invariants.Produced {
	p := invariants.Produced{ID: id, Partition: invariants.Partition{Topic: fleet.Topic, ID: r.Partition}, Offset: r.Offset, At: r.Timestamp}
	n, err := strconv.Atoi(r.Headers["fleet-record"])
	if err != nil || n < 0 || n >= len(w.produce) {
		return p // the accounting says so
	}
	want := w.produce[n].Want
	p.Copy, p.Unsent = want.Copy, want.Unsent
	for _, o := range want.Outcomes {
		p.Outcomes = append(p.Outcomes, outcomes[o])
	}
	return p
}

// about tells the checker of a notification's devices. In at_most_once it gets
// none: a death between the intents of one notification may leave a device
// without any row. And where a living device may end UNKNOWN, or SUPPRESSED because its
// user opts out, the dead one beside it decides what became of the whole.
func (w *world) about(p *invariants.Produced, t crowd.Targets) {
	if !w.once() {
		p.Devices, p.Dead = t.Live, t.Dead
	}
	if w.Config.Lanes[0].DropsAmbiguous() && len(t.Dead) > 0 && len(t.Live) > 0 {
		p.Outcomes = append(p.Outcomes, invariants.Outcome(invariants.Failed), invariants.Outcome(invariants.Suppressed))
	}
	if suppressed := invariants.Outcome(invariants.Suppressed); len(p.Outcomes) > 1 && slices.Contains(p.Outcomes, suppressed) && len(t.Dead) > 0 {
		p.Outcomes = append(p.Outcomes, invariants.Outcome(invariants.Failed))
	}
}

// outcomes are the checker's words for the worker's.
var outcomes = map[push.Outcome]invariants.Outcome{
	push.OutcomeDelivered: invariants.Outcome(invariants.Delivered), push.OutcomeFailed: invariants.Outcome(invariants.Failed),
	push.OutcomeExpired: invariants.Outcome(invariants.Expired), push.OutcomeSuppressed: invariants.Outcome(invariants.Suppressed),
	push.OutcomeDeadLettered: invariants.Outcome(invariants.DeadLettered), push.OutcomeUnknown: invariants.Outcome(invariants.Unknown),
}

// samples are the commits of a partition, and how it stands in the end.
func samples(p push.Partition, commits []commit, end int64, waits bool) (list []invariants.Sample) {
	place, at, committed := invariants.Partition{Topic: p.Topic, ID: p.ID}, time.Now(), int64(0)
	for _, c := range commits {
		committed = c.offset
		list = append(list, invariants.Sample{At: c.at, Partition: place, Committed: committed, End: -1, Waits: waits})
	}
	return append(list, invariants.Sample{At: at, Partition: place, Committed: committed, End: end, Waits: waits})
}

// rows are all rows, with the time at which each became durable.
func (s *Store) rows() (rows []invariants.Row) {
	stored := maps.Collect(s.memory.All())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(stored)) {
		for _, r := range stored[id] {
			rows = append(rows, invariants.Row{Pair: invariants.Pair{ID: id, Device: r.Device}, Step: int(r.Step), State: invariants.State(r.State),
				At: s.durable[id][rowKey{r.Device, r.Step, r.State}], Reason: r.Reason})
		}
	}
	return rows
}
