package pipeline

import (
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// Policy says what happens after answers that are not final.
type Policy struct {
	MaxRetries int // provider attempts after the first, then DEAD_LETTERED
	// RetryDelays are the minimum delays before the first retry, the second and
	// so on; the last one applies to all further retries.
	RetryDelays []time.Duration
	// DropAmbiguous ends an ambiguous send (it may or may not have been
	// accepted) as UNKNOWN, instead of sending it again.
	DropAmbiguous bool
}

// Ending is what a Result means for its device: the row to write (none without a
// State) and, for StateRetrying, StateHeld and StateDeadLettered, that a record
// is handed over first.
type Ending struct {
	State     push.State
	Reason    push.Reason
	NotBefore push.Instant // with StateRetrying
}

// decide sets the ending of each delivery. All later steps use it, and only deadLetter
// replaces it, if the record to hand over is too large. It returns the deliveries whose
// rows may be written now, and those that wait for a hand-over first. What came back
// unsent and is to be sent later is in neither.
func (p *Pipeline) decide(group []*Delivery, now time.Time) (here, handing []*Delivery) {
	group = p.sendLater(group, now)
	if p.opt.Observe != nil {
		p.opt.Observe(group)
	}
	p.poisonedSends(group)
	p.keepTokens(group, now)
	for i := range push.Prefetching(len(group), func(i int) byte { return group[i].own() + byte(group[i].Item.Attempt) }) {
		if d := group[i]; !d.abandoned {
			p.decideOne(d, now)
		}
	}
	p.opt.Metrics.results(p.opt.Lane, group)
	return split(group, (*Delivery).waits)
}

// keepTokens keeps the tokens of an app of which so many are called dead that it is not
// to be believed. The messages have failed all the same. If nearly all are of one origin,
// that is stopped on all routes of the app.
func (p *Pipeline) keepTokens(group []*Delivery, now time.Time) {
	if p.opt.Tokens == nil {
		return
	}
	type count struct {
		app     string
		answers int
		dead    []*push.Message
	}
	var room [4]count // most groups are of one app
	counts := room[:0]
	for _, d := range group {
		if !d.answered() {
			continue
		}
		if d.Result.Class == push.Gone && d.ticket.Quarantined(now, &d.Item.Message) { // it was under way
			d.kept = true
			continue
		}
		i := slices.IndexFunc(counts, func(c count) bool { return c.app == d.Route.App })
		if i < 0 {
			i, counts = len(counts), append(counts, count{app: d.Route.App})
		}
		counts[i].answers++
		if d.Result.Class == push.Gone {
			counts[i].dead = append(counts[i].dead, &d.Item.Message)
		}
	}
	for _, c := range counts {
		believe, fault := p.opt.Tokens.Believe(c.app, c.answers, c.dead, now)
		if believe || len(c.dead) == 0 {
			continue
		}
		for _, d := range group {
			if d.Route.App == c.app {
				d.kept = true // where it is no dead token, it means nothing
			}
		}
		p.opt.Metrics.keptTokens(c.app, len(c.dead))
		for r, of := range p.routes {
			if fault != nil && r.App == c.app {
				of.gate.Quarantine(now, *fault, FoundByFeedback)
			}
		}
	}
}

// FoundByFeedback is the word for an origin that is stopped because of what providers say of
// an app's tokens on all of its routes.
const FoundByFeedback = "feedback"

// decideOne decides one delivery. If that panics, it ends UNKNOWN, or DELIVERED if it
// was; the others are not affected.
func (p *Pipeline) decideOne(d *Delivery, now time.Time) {
	if caught := p.judge(d, now); caught != nil {
		d.ending = Ending{State: push.StateUnknown, Reason: push.Panicked}
		if d.Result.Class == push.Delivered {
			d.ending.State = push.StateDelivered
		}
		p.poisoned(Poisoned{First: caught, Panics: 1})
	}
	if d.ending.State != push.StateDeadLettered {
		d.ticket.Spare()
	}
}

func (p *Pipeline) judge(d *Delivery, now time.Time) (caught *push.PanicError) {
	defer func() { caught = push.Recovered(string(StepSettle), recover()) }()
	switch d.Verdict {
	case push.Undecided:
		d.ending = p.opt.Policy.Decide(&d.Result, d.Item.Attempt, d.Expires.Time(), now)
	case push.Duplicate: // its first copy gets the outcome
	case push.Deferred:
		if d.whole() {
			d.ending = Ending{State: push.StateHeld, Reason: d.Reason}
		} else { // when it has waited once more, its item is judged again as a whole
			d.ending = held(d.Reason, now, d.Expires.Time(), now)
		}
	default:
		d.ending = Ending{State: d.Verdict.State(), Reason: d.Reason}
	}
	return nil
}

// Decide returns the ending for the result of one send. This is the whole retry
// policy:
//
//	result                         ending         record
//	Delivered                      DELIVERED      -
//	Gone                           FAILED         feedback, unless kept
//	Refused                        FAILED         -
//	Refused, because of a panic    DEAD_LETTERED  DLQ
//	Refused, given back expired    EXPIRED        -
//	Claimed                        no row         - (another record's)
//	Again, ambiguous, if dropped   UNKNOWN        -
//	Held, or Again with Halt       HELD           hold topic, hop + 1; no attempt; due when the pause is over
//	Again, retries left            RETRYING       retry topic, attempt + 1
//	Again, due after its expiry    EXPIRED        -
//	Again, no retries left         DEAD_LETTERED  DLQ
func (p Policy) Decide(r *push.Result, attempt int, expires, now time.Time) Ending {
	reason := push.Reason(r.Reason)
	switch r.Class {
	case push.Claimed:
		return Ending{}
	case push.Held:
		return held(reason, r.Until.Time(), expires, now)
	case push.Delivered:
		return Ending{State: push.StateDelivered}
	case push.Gone:
		return Ending{State: push.StateFailed, Reason: reason}
	case push.Refused:
		if r.Expired {
			return Ending{State: push.StateExpired, Reason: push.PastExpiry}
		}
		if r.Panic != nil {
			return Ending{State: push.StateDeadLettered, Reason: push.Panicked}
		}
		return Ending{State: push.StateFailed, Reason: reason}
	}
	if r.Certainty == push.Ambiguous && p.DropAmbiguous { // before Halt, because what is held is sent again too
		return Ending{State: push.StateUnknown, Reason: reason}
	}
	if r.Halt {
		if r.Scope == push.ScopeDevice { // the route goes on sending; when this device can be sent to is not known
			return held(reason, now.Add(longestHold), expires, now)
		}
		return held(reason, r.Until.Time(), expires, now)
	}
	if attempt >= p.MaxRetries {
		return Ending{State: push.StateDeadLettered, Reason: push.RetriesUsed}
	}
	due := now.Add(max(r.After, p.RetryDelays[min(attempt, len(p.RetryDelays)-1)]))
	if !expires.IsZero() && due.After(expires) {
		return Ending{State: push.StateExpired, Reason: push.PastExpiry}
	}
	return Ending{State: push.StateRetrying, Reason: reason, NotBefore: push.At(due)}
}

// The shortest and the longest time that a record waits in the hold topic per hop.
const (
	shortestHold = 30 * time.Second
	longestHold  = 5 * time.Minute
)

// held makes a delivery wait in the hold topic until its route's pause is expected
// to end, so that all records held during one pause are due together. Thus a route
// that is stopped for long costs few hand-overs per record.
func held(reason push.Reason, until, expires, now time.Time) Ending {
	due := until
	if least := now.Add(shortestHold); due.Before(least) {
		due = least
	}
	if most := now.Add(longestHold); due.After(most) {
		due = most
	}
	if !expires.IsZero() && due.After(expires) {
		return Ending{State: push.StateExpired, Reason: push.PastExpiry}
	}
	return Ending{State: push.StateHeld, Reason: reason, NotBefore: push.At(due)}
}

// waits reports whether a record must be produced before the row of a delivery is
// written: a hand-over, or the feedback on a dead token. An abandoned delivery gets
// no row.
func (d *Delivery) waits() bool {
	return !d.abandoned && (d.ending.HandsOver() || d.removesToken())
}

// answered reports whether the provider has said something final about the message or
// the token.
func (d *Delivery) answered() bool {
	r := &d.Result
	return r.Reached() && (r.Class == push.Delivered || r.Class == push.Gone || r.Class == push.Refused)
}

// removesToken reports whether a dead token is to be reported.
func (d *Delivery) removesToken() bool { return d.Result.Class == push.Gone && !d.kept }

// HandsOver reports whether a record must be produced before the row is written.
func (e Ending) HandsOver() bool { return e.State.HandedOver() || e.State == push.StateDeadLettered }

// sendLater puts deliveries that came back unsent in front of the others of their
// partitions again, without a place in the window, and returns the rest of the
// group in place. Deliveries that this worker may not send any more are given back.
func (p *Pipeline) sendLater(group []*Delivery, now time.Time) []*Delivery {
	var later map[*share][]*Delivery
	stay := group[:0]
	for _, d := range group {
		if d.abandoned || d.Verdict != push.Undecided || d.Result.Class != push.Unsent {
			stay = append(stay, d)
			continue
		}
		d.ticket.Refund()
		d.ticket = gates.Ticket{}
		if d.inWindow {
			d.inWindow = false
			d.share.line.leaveWindow(1)
		}
		if p.goesBack(d, now) {
			unsent([]*Delivery{d})
			stay = append(stay, d)
			continue
		}
		if later == nil {
			later = make(map[*share][]*Delivery)
		}
		later[d.share] = append(later[d.share], d)
	}
	for s, ds := range later {
		if !s.line.waiting.putBack(s, ds) {
			unsent(ds)
			stay = append(stay, ds...)
		}
	}
	return stay
}

// goesBack reports whether a delivery that is not sent yet must be given back: its
// partition leaves. A committed delivery is given back only once the partition has
// been leaving for too long: its answer might come after the drain, when the next
// owner has ended its intent as UNKNOWN.
func (p *Pipeline) goesBack(d *Delivery, now time.Time) bool {
	left := d.Item.batch.Tracker.Left()
	return left != nil && (!d.Item.committed || now.Sub(*left) >= p.opt.submitAfterStop())
}

// unsent marks deliveries that this worker will not send. They are left to the next
// owner, but a committed one has no next owner, and goes to the hold topic.
func unsent(ds []*Delivery) {
	for _, d := range ds {
		if d.Item.committed {
			d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Reason: string(push.WorkerStopped)}
		} else {
			d.abandoned = true
		}
	}
}

// poisonedSends counts and logs the sends on which a provider's code panicked.
func (p *Pipeline) poisonedSends(group []*Delivery) {
	var found []Poisoned // one for each stage
	for _, d := range group {
		caught := d.Result.Panic
		if caught == nil {
			continue
		}
		i := slices.IndexFunc(found, func(f Poisoned) bool { return f.First.Stage == caught.Stage })
		if i < 0 {
			i = len(found)
			found = append(found, Poisoned{First: caught})
		}
		found[i].Panics++
		if d.Result.Class == push.Refused {
			found[i].Dead = append(found[i].Dead, d.Item)
		}
	}
	for _, f := range found {
		p.poisoned(f)
	}
}
