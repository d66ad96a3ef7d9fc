package main

import (
	"context"
	"slices"
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

// produced is what the demo remembers of a record that Kafka acknowledged, so
// that it can look up the outcome.
type produced struct {
	id   string // empty if the record has no usable one
	user int
	fate crowd.Fate
	mark uint64 // of a broken record; its copy in the DLQ has the same
}

// markOf identifies a record that may have no id.
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
	id   string // of its status row
}

// letterOf reads a record of a DLQ.
func letterOf(r *kafka.Record) letter {
	l := letter{mark: markOf(r.Key, r.Value)}
	var m push.Message
	decode.Message(r.Value, &m) // a broken record may still have an id
	if l.id = strings.Clone(m.ID); l.id == "" {
		l.id = placeOf(r.Headers["pf-origin"])
	}
	return l
}

// placeOf is the id of a record without a usable one. Origin is its place:
// topic/partition/offset.
func placeOf(origin string) string {
	rest, offset := cutLast(origin)
	topic, partition := cutLast(rest)
	return push.PlaceID(topic, int32(partition), offset)
}

func cutLast(s string) (before string, n int64) {
	i := strings.LastIndexByte(s, '/')
	n, _ = strconv.ParseInt(s[i+1:], 10, 64) // 0 if it is not a number; then the id matches nothing
	return s[:max(i, 0)], n
}

// pushLedger is the part of *sim.Ledger that the account needs.
type pushLedger interface {
	Each(f func(sim.Entry) bool)
}

// evidence is what a run left behind, and what was meant to happen. None of it
// comes from the worker's own reports.
type evidence struct {
	people      *crowd.Crowd
	records     []produced // the producer's ledger, in order
	status      *status.Memory
	ledger      pushLedger // the providers'
	letters     []letter   // the DLQ
	interrupted bool       // by Ctrl-C; missing records are then unfinished, not lost
}

// accounting is one pass over the evidence.
type accounting struct {
	*evidence
	*demoResult
	pushes  map[string][]crowd.Push           // by id; in the end, those that belong to no record
	refused map[string]bool                   // devices that a provider has refused at least once
	open    map[string]bool                   // ids without an outcome
	greedy  map[int]struct{ wanted, got int } // notifications of users over their cap, by user
	known   int                               // notifications with rows in the status store
}

// account finds the one outcome of every record that was produced, and compares
// the four ledgers: producer, providers, status store and DLQ.
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

// missing counts a record without an outcome.
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

// notifications looks up every id in the status store, and every device that
// should have been reached in the simulator's ledger.
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
		if outcome == push.NoRows || outcome == push.OutcomeOpen || a.interrupted && a.partly(p, rows) {
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
			a.differ("user u%d got %d of %d notifications, want %d", user, g.got, g.wanted, want)
		}
	}
	return nil
}

// partly reports whether a device of a notification has no row yet, as where its worker
// was interrupted between two of them.
func (a *accounting) partly(p *produced, rows []push.Row) bool {
	has := func(device string) bool {
		return slices.ContainsFunc(rows, func(r push.Row) bool { return r.Device == device })
	}
	targets := a.people.Targets(p.user)
	return !has("") && (slices.ContainsFunc(targets.Live, func(d string) bool { return !has(d) }) ||
		slices.ContainsFunc(targets.Dead, func(d string) bool { return !has(d) && !a.refused[d] }))
}

// agree checks that exactly the pushes that a provider accepted have a DELIVERED
// row.
func (a *accounting) agree(id string, rows []push.Row, pushes []crowd.Push) {
	delivered := make(map[string]bool, len(rows))
	for i := range rows {
		if rows[i].State == push.StateDelivered {
			delivered[rows[i].Device] = true
		}
	}
	for _, p := range pushes {
		// An answer that arrived after an interrupted worker had ended has no row.
		if p.Accepted > 0 && !delivered[p.Device] && !a.interrupted {
			a.differ("%s was accepted for device %s, but has no DELIVERED row", id, p.Device)
		}
		if p.Accepted > 0 {
			delete(delivered, p.Device)
		}
	}
	for device := range delivered {
		a.differ("%s is DELIVERED to device %s, but no provider accepted it", id, device)
	}
}

// reached checks that a delivered notification reached every device of its user
// and no other. For greedy users it counts what they got, up to their cap.
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
		return // an interrupted worker may have sent to some devices only
	}
	a.expected += len(targets.Live)
	if missed := targets.Missed(&e); len(missed) > 0 {
		a.NotPushed += len(missed)
		a.differ("%s was not pushed to device %s, of the user's %d devices", p.id, strings.Join(missed, ", "), len(targets.Live))
	}
}

// copies accounts for second copies: they share the outcome of the first one.
// That they cause no extra push is checked above.
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

// deadLetters checks that exactly the broken records are in the DLQ, and that
// their status says so.
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
			a.differ("%s is in the DLQ, but its status is %v", list[0].id, outcome)
		}
	}
	for _, list := range letters {
		for _, l := range list {
			a.differ("%s is in the DLQ, but is a usable record or a second copy", l.id)
		}
	}
	return nil
}

// strangers finds pushes and status rows that belong to no record.
func (a *accounting) strangers() {
	for id := range a.pushes {
		a.differ("%s was pushed, but no record asked for it", id)
	}
	if n, _ := a.status.Len(); n != a.known {
		a.differ("the status store has rows of %d notifications, but %d were produced", n, a.known)
	}
}

// count counts one notification by its outcome. It returns false for an outcome
// that the demo does not expect.
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

// fits reports whether the outcome and its reason are those that the crowd
// intended.
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
