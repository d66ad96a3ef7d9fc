package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/status"
)

// produced is what the demo remembers of a record that Kafka acknowledged:
// enough to ask what became of it.
type produced struct {
	id   string // empty where the record has no usable one
	user int
	fate crowd.Fate
	mark uint64 // of a record that cannot be used: its copy in the DLQ has the same
}

// markOf recognises a record that may have no id.
func markOf(key, value []byte) uint64 {
	h := xxhash.New()
	_, _ = h.Write(key)
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(value)
	return h.Sum64()
}

// letter is one record of the DLQ.
type letter struct {
	mark uint64
	id   string // that its status row stands under
}

// letterOf reads a record of a DLQ.
func letterOf(r *kafka.Record) letter {
	l := letter{mark: markOf(r.Key, r.Value)}
	var m push.Message
	decode.Message(r.Value, &m) // what cannot be used may have an id all the same
	if l.id = strings.Clone(m.ID); l.id == "" {
		l.id = placeOf(r.Headers["pf-origin"])
	}
	return l
}

// placeOf is the id of a record without one, by where it stands: topic, partition
// and offset with slashes between them.
func placeOf(origin string) string {
	rest, offset := cutLast(origin)
	topic, partition := cutLast(rest)
	return push.PlaceID(topic, int32(partition), offset)
}

func cutLast(s string) (before string, n int64) {
	i := strings.LastIndexByte(s, '/')
	n, _ = strconv.ParseInt(s[i+1:], 10, 64) // what is no number stands for nothing that was produced
	return s[:max(i, 0)], n
}

// pushLedger is *sim.Ledger, as far as the account asks it.
type pushLedger interface {
	Each(f func(sim.Entry) bool)
}

// evidence is what a run has left behind, and what was meant. Nothing of it is
// what the worker says of itself.
type evidence struct {
	people      *crowd.Crowd
	records     []produced // the producer's ledger, in order
	status      *status.Memory
	ledger      pushLedger // the providers'
	letters     []letter   // the DLQ
	interrupted bool       // then what is missing is unfinished
}

// accounting is one pass over the evidence.
type accounting struct {
	*evidence
	*demoResult
	pushes  map[string][]crowd.Push // by id; what is left belongs to no record
	refused map[string]bool         // devices of which a provider has refused anything
	open    map[string]bool         // ids without an end
	greedy  map[int]struct{ wanted, got int }
	known   int // notifications that the status store has rows of
}

// account finds for every record that was produced the one thing that became of
// it, and holds the four ledgers against each other.
func account(ctx context.Context, e *evidence) (*demoResult, error) {
	a := &accounting{evidence: e, demoResult: &demoResult{Produced: len(e.records)}, pushes: make(map[string][]crowd.Push),
		refused: make(map[string]bool), open: make(map[string]bool), greedy: make(map[int]struct{ wanted, got int })}
	a.readLedger()
	if err := a.notifications(ctx); err != nil {
		return nil, err
	}
	a.copies()
	if err := a.deadLetters(ctx); err != nil {
		return nil, err
	}
	a.strangers()
	return a.demoResult, nil
}

// missing counts records of which nothing says what became of them.
func (a *accounting) missing() {
	if a.interrupted {
		a.Unfinished++
	} else {
		a.Lost++
	}
}

func (a *accounting) readLedger() {
	a.ledger.Each(func(e sim.Entry) bool {
		a.pushes[e.ID] = append(a.pushes[e.ID], crowd.Push{Device: e.Device, Accepted: e.Accepted, Refused: e.Refused})
		a.Pushes += e.Accepted
		a.SentTwice += max(0, e.Accepted-1)
		if e.Refused > 0 {
			a.refused[e.Device] = true
		}
		return true
	})
}

// notifications asks the status store about every id, and the simulator about
// every device that it was to reach.
func (a *accounting) notifications(ctx context.Context) error {
	for i := range a.records {
		p := &a.records[i]
		if p.fate == crowd.IsCopy || p.fate == crowd.DeadLetters {
			continue
		}
		found, err := a.status.Read(ctx, []string{p.id})
		if err != nil {
			return err
		}
		rows, pushes := found[0], a.pushes[p.id]
		delete(a.pushes, p.id)
		if len(rows) > 0 {
			a.known++
		}
		outcome := (&push.History{Rows: rows}).Outcome()
		if outcome == push.NoRows || outcome == push.OutcomeOpen {
			a.open[p.id] = true
			a.missing()
			continue
		}
		if !a.count(outcome, rows) || !fits(p.fate, outcome, rows) {
			a.differ("%s, which %s, ended %v %s", p.id, p.fate, outcome, rows[0].Reason)
		}
		a.agree(p.id, rows, pushes)
		a.reached(p, outcome, rows, pushes)
	}
	for user, g := range a.greedy {
		if want := min(g.wanted, a.people.Cap); g.got != want && !a.interrupted {
			a.differ("user u%d, who may get %d of %d, got %d", user, want, g.wanted, g.got)
		}
	}
	return nil
}

// agree: what a provider accepted has a DELIVERED row, and nothing else has.
func (a *accounting) agree(id string, rows []push.Row, pushes []crowd.Push) {
	delivered := make(map[string]bool, len(rows))
	for i := range rows {
		if rows[i].State == push.StateDelivered {
			delivered[rows[i].Device] = true
		}
	}
	for _, p := range pushes {
		// An answer that came after the end of an interrupted worker has no row.
		if p.Accepted > 0 && !delivered[p.Device] && !a.interrupted {
			a.differ("%s was accepted for device %s, and the status store does not say so", id, p.Device)
		}
		if p.Accepted > 0 {
			delete(delivered, p.Device)
		}
	}
	for device := range delivered {
		a.differ("%s is DELIVERED to device %s, which never accepted it", id, device)
	}
}

// reached: a notification that was delivered is on every device of its user, and
// on no other; a greedy user gets what the cap allows.
func (a *accounting) reached(p *produced, outcome push.Outcome, rows []push.Row, pushes []crowd.Push) {
	targets := a.people.Targets(p.user)
	e := crowd.Ended{Rows: rows, Pushes: pushes, May: []push.Outcome{push.OutcomeDelivered}, Removed: func(d string) bool { return a.refused[d] }}
	for _, why := range targets.Wrong(&e) {
		a.differ("%s %s", p.id, why)
	}
	if p.fate == crowd.MayBeLimited {
		g := a.greedy[p.user]
		g.wanted++
		if outcome == push.OutcomeDelivered {
			g.got++
		}
		a.greedy[p.user] = g
	}
	if outcome != push.OutcomeDelivered || a.interrupted {
		return // half of it may be the next worker's
	}
	a.expected += len(targets.Live)
	if missed := targets.Missed(&e); len(missed) > 0 {
		a.NotPushed += len(missed)
		a.differ("%s was not pushed to device %s, one of its user's %d", p.id, strings.Join(missed, ", "), len(targets.Live))
	}
}

// copies are accounted for by the end of their first: one outcome for both, and
// no push more than its devices, which is seen above.
func (a *accounting) copies() {
	for i := range a.records {
		switch p := &a.records[i]; {
		case p.fate != crowd.IsCopy:
		case a.open[p.id]:
			a.missing()
		default:
			a.Suppressed.Duplicate++
		}
	}
}

// deadLetters: every record that cannot be used is in the DLQ, and its status
// says so; nothing else is there.
func (a *accounting) deadLetters(ctx context.Context) error {
	letters := make(map[uint64][]letter, len(a.letters))
	for _, l := range a.letters {
		letters[l.mark] = append(letters[l.mark], l)
	}
	for i := range a.records {
		p := &a.records[i]
		if p.fate != crowd.DeadLetters {
			continue
		}
		list := letters[p.mark]
		if len(list) == 0 {
			a.missing()
			continue
		}
		letters[p.mark] = list[1:]
		found, err := a.status.Read(ctx, []string{list[0].id})
		if err != nil {
			return err
		}
		switch outcome := (&push.History{Rows: found[0]}).Outcome(); {
		case outcome == push.OutcomeDeadLettered:
			a.known++
			a.DeadLettered++
		case outcome == push.NoRows && a.interrupted:
			a.missing()
		default:
			a.missing()
			a.differ("%s is in the DLQ, and its status is %v", list[0].id, outcome)
		}
	}
	for _, list := range letters {
		for _, l := range list {
			a.differ("%s is in the DLQ, and nothing is wrong with it", l.id)
		}
	}
	return nil
}

// strangers are pushes and status rows of what was never produced, or never to
// be pushed.
func (a *accounting) strangers() {
	for id := range a.pushes {
		a.differ("%s was pushed, and no record asked for it", id)
	}
	if n, _ := a.status.Len(); n != a.known {
		a.differ("the status store has rows of %d notifications, %d were produced", n, a.known)
	}
}

// count adds one notification to its column.
func (r *demoResult) count(o push.Outcome, rows []push.Row) bool {
	switch o {
	case push.OutcomeDelivered:
		r.Delivered++
	case push.OutcomeFailed:
		r.Failed++
	case push.OutcomeExpired:
		r.Expired++
	case push.OutcomeSuppressed:
		switch reason := rows[0].Reason; {
		case strings.HasPrefix(reason, string(push.Limited)):
			r.Suppressed.Limited++
		case strings.HasPrefix(reason, "opted_out"):
			r.Suppressed.OptedOut++
		default:
			r.Suppressed.NoDevice++
		}
	default:
		return false
	}
	return true
}

// fits says whether an outcome is what the crowd meant, and for its reason.
func fits(f crowd.Fate, o push.Outcome, rows []push.Row) bool {
	suppressed := func(reason string) bool {
		return o == push.OutcomeSuppressed && strings.HasPrefix(rows[0].Reason, reason)
	}
	switch f {
	case crowd.Reaches:
		return o == push.OutcomeDelivered
	case crowd.MayExpire:
		return o == push.OutcomeDelivered || o == push.OutcomeExpired
	case crowd.MayBeLimited:
		return o == push.OutcomeDelivered || suppressed(string(push.Limited))
	case crowd.DeadEnds:
		return o == push.OutcomeFailed || suppressed(string(push.NoDevice)) || suppressed(string(push.TokenGone))
	case crowd.Expires:
		return o == push.OutcomeExpired
	case crowd.HasNoDevice:
		return suppressed(string(push.NoDevice))
	}
	return suppressed("opted_out")
}
