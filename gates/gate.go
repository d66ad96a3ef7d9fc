package gates

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Gate lets a route's deliveries through, or stops them: when the provider
// asks for a pause, when it refuses our credentials, when most sends fail. It
// belongs to one Route and is shared by all lanes of a worker.
//
//	        Retry-After, halt, too many bad answers, or some in a row
//	 ┌────────────────────────────────────────────────┐
//	open                                             closed ──┐ the pause is over
//	 ▲                                                ▲       ▼
//	 └── rounds of 3, 6, 12 … probes went well ─── probing ───┘ a round went badly: the pause doubles
//
// Every send that Admit lets through goes to Return exactly once, with
// its Ticket, sent or not. Nothing here reads the clock, blocks or starts a
// goroutine, and all methods may be called at once.
type Gate struct {
	route   push.Route
	options Options
	rate    Rate // nil = there is none
	metrics gateMetrics
	log     *slog.Logger
	born    time.Time

	// Retries pays for what retry partitions send on this route, DeadLetters
	// for their last attempts. Delivered sends earn both.
	Retries, DeadLetters *Budget

	// shut is until when nothing is to be sent, in nanoseconds after born: what
	// Closed reads without the lock. 0 = not closed.
	shut atomic.Int64

	mu     sync.Mutex
	state  gateState
	pass   uint32 // marks what was admitted since the last change of state
	answer answerWindow
	row    row
	probes probeRound
	until  time.Time     // end of the pause, while closed
	latest time.Time     // the latest end anywhere in the fleet, with the largest possible jitter
	pause  time.Duration // length of the last one, without what the provider asked
	past   pauses        // periods in which it was not open
	opened time.Time     // when it last became open again
	reason PauseReason
	asked  time.Time       // until when the provider itself asked for nothing, anywhere in the fleet; zero = it did not
	halted bool            // while it is closed: because credentials were refused, here or elsewhere
	used   bool            // asked for sends; while it is open: it has answers of its own
	untold untold          // not yet told to other workers
	fleet  fleet           // what the other workers' gates are about
	news   chan<- struct{} // capacity 1: there is something untold
	wards  wards           // what is quarantined

	// stopped is what wards has, for Quarantined: never changed once it is here; nil = nothing.
	stopped atomic.Pointer[map[push.Origin]time.Time]

	// What View tells besides.
	admitted uint64 // sends since the start
	answered tally
	word     string    // the last bad one
	wordAt   time.Time // when
}

type gateState uint8

const (
	gateOpen gateState = iota
	gateClosed
	gateProbing
)

// PauseReason is why a gate closed; a metric label.
type PauseReason string

// The reasons for a pause.
const (
	PauseAsked  PauseReason = "retry_after" // the provider named a time
	PauseHalted PauseReason = "halt"        // credentials or set-up are at fault
	PauseErrors PauseReason = "errors"      // too large a share of answers was bad, or of probes
	PauseInARow PauseReason = "in_a_row"    // some bad answers in a row, at a low rate
	PauseFleet  PauseReason = "fleet"       // other workers' answers were bad, and there is no good one of our own
	PauseTold   PauseReason = "told"        // another worker, or this one before a restart, was told to
)

// probeRound is one round of probes: limit of them are let through, and judged
// once all have been answered.
type probeRound struct {
	number       int // 0 = the first since the pause
	limit        int
	sent         int // admitted and not given back unsent
	good, bad    int
	last         time.Time // when the newest of them was admitted
	unansweredBy time.Time // from then on probes without an answer count as bad
}

func newGate(r push.Route, o Options, m gateMetrics, log *slog.Logger, now time.Time, news chan<- struct{}) *Gate {
	return &Gate{route: r, options: o, rate: o.Rates[r], metrics: m, log: log, born: now, news: news, pass: 1, past: pauses{span: o.HoldSpan},
		answer: newAnswerWindow(o.Window), row: newRow(o.Failures), Retries: newBudget(o.Retries, now), DeadLetters: newBudget(o.DeadLetters, now)}
}

// Admit says how many of n sends with the same Charge may be made now, and
// gives the ticket that is each one's own. If none may, again is when to ask
// next (not sooner), and lack says what is missing. If some may but not all,
// ask again at once. Where a rate is short, urgent sends come first.
func (g *Gate) Admit(now time.Time, c Charge, urgent bool, n int) (t Ticket, admitted int, again time.Time, lack Lack) {
	paid, again, lack := c.pay(now, g, n)
	if paid == 0 {
		return Ticket{}, 0, again, lack
	}
	t, admitted, again, lack = g.admit(now, urgent, paid)
	c.refund(g, paid-admitted)
	t.paid = c
	return t, admitted, again, lack
}

// admit lets through what is paid for.
func (g *Gate) admit(now time.Time, urgent bool, n int) (t Ticket, admitted int, again time.Time, lack Lack) {
	g.mu.Lock()
	change := g.advance(now)
	lack = RouteStopped
	switch g.state {
	case gateOpen:
		admitted = n
	case gateProbing:
		admitted = min(n, g.probes.limit-g.probes.sent)
		again = now.Add(probePoll)
	case gateClosed:
		again = g.until
		if !again.After(now) { // it waits for the fleet
			again = g.want(now)
		}
	}
	t = Ticket{gate: g, pass: g.pass}
	if admitted > 0 && g.rate != nil {
		lack = RateSpent
		admitted, t.epoch, again = g.rate.Take(now, urgent, admitted)
	}
	if g.state == gateProbing && admitted > 0 {
		g.probes.sent += admitted
		g.probes.last, g.probes.unansweredBy = now, now.Add(g.options.ProbeTimeout)
	}
	g.admitted += uint64(admitted)
	g.used = true // when nothing was let through, it opens only by probes, which are
	g.mu.Unlock()
	change.log(g.log)
	return t, admitted, again, lack
}

// Renewed is called when the route has other credentials. What they were refused for
// is over: a halt ends, and the first probe may go out at once. Answers to what was sent
// before count no more. A pause that the provider asked for, or that errors led to, stays.
func (g *Gate) Renewed(now time.Time) {
	g.mu.Lock()
	change := g.advance(now)
	g.pass++
	if g.untold.reason == PauseHalted {
		g.untold = untold{} // a store that comes back is not to halt those who start now
	}
	switch {
	case g.state == gateProbing:
		g.probes = probeRound{limit: 1}
		g.pause = 0
	case g.state == gateClosed && g.halted:
		g.pause, g.halted = 0, false
		if now.Before(g.asked) {
			g.shutFor(now, g.asked.Sub(now))
			break
		}
		g.until, g.latest = now, now
		g.shut.Store(int64(g.until.Sub(g.born)))
		change = g.advance(now)
	}
	g.mu.Unlock()
	change.log(g.log)
}

// Closed reports whether nothing may be sent now. It takes no lock and costs
// nanoseconds: for what waits in a queue and is asked again before it is
// written.
func (g *Gate) Closed(now time.Time) bool {
	return int64(now.Sub(g.born)) < g.shut.Load()
}

// Until is the end of the pause, or zero when there is none.
func (g *Gate) Until(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != gateClosed || !now.Before(g.until) {
		return time.Time{}
	}
	return g.until
}

// Rests is the earliest time at which something held now should come back: when
// the pause is over for all workers that know of it. Zero when there is no
// pause or its end is unknown. All that is held during one pause gets the same
// end.
func (g *Gate) Rests(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rests(now)
}

func (g *Gate) rests(now time.Time) time.Time {
	if g.state != gateClosed || !now.Before(g.until) {
		return time.Time{}
	}
	return g.latest
}

// Hold reports whether what Admit does not let through is to go to the hold
// topic rather than to wait here: when the route was paused for longer than
// HoldAfter of the last HoldSpan, or is known to be by the end of this pause.
// Probes that are out are waited for a moment, and once a round of them went
// well nothing is held any more.
func (g *Gate) Hold(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	end := now
	switch g.state {
	case gateOpen:
		return false
	case gateClosed:
		if g.until.After(now) {
			end = g.until
		}
	case gateProbing:
		if g.probes.number > 0 || g.probes.sent > 0 && now.Sub(g.probes.last) < g.options.ProbeWait {
			return false
		}
	}
	return g.past.within(now)+end.Sub(now) > g.options.HoldAfter
}

// takeBack counts what became of sends that Admit let through, and judges the route.
func (g *Gate) takeBack(now time.Time, answers []Answer) {
	delivered, asked, halted, word := 0, time.Duration(0), false, ""
	var counted, late rated
	var begun []Quarantined
	var alike Answered // the last answers, as many as are of one kind
	var epoch, earlier uint32
	if g.rate != nil {
		epoch = g.rate.Epoch()
	}
	g.mu.Lock()
	passed := g.advance(now)
	g.answered.move(now)
	for _, a := range answers {
		r, current := a.Result, a.Ticket.pass == g.pass
		if !r.Reached() {
			if current && g.state == gateProbing {
				g.probes.sent--
			}
			continue
		}
		if r.Class != alike.Class || r.Reason != alike.Reason {
			g.answered.add(alike)
			alike = Answered{Class: r.Class, Reason: r.Reason}
		}
		alike.N++
		if r.Class == push.Delivered {
			delivered++
		}
		if a.Ticket.epoch == epoch {
			counted.add(r)
		} else {
			late.add(r)
			earlier = a.Ticket.epoch
		}
		bad := r.BlamesRoute()
		switch {
		case bad && r.Pause && r.After > 0:
			// Also for sends from long ago: the provider named a minimum.
			if r.After > asked {
				asked, word = r.After, r.Reason
			}
		case bad && r.Halt && current:
			halted, word = true, r.Reason
		case r.Culprit != nil:
			qs, ok := g.quarantine(now, *r.Culprit, r.Reason)
			if !ok && current && r.Halt {
				halted, word = true, r.Reason
			}
			begun = append(begun, qs...)
		case bad && word == "":
			word = r.Reason
		}
		if current {
			g.count(now, bad, r)
		}
	}
	if g.rate != nil && counted != (rated{}) {
		g.rate.Answered(now, epoch, counted.good, counted.overQuota, counted.failing)
	}
	if g.rate != nil && late.good > 0 {
		g.rate.Answered(now, earlier, late.good, 0, 0)
	}
	g.answered.add(alike)
	if word != "" {
		g.word, g.wordAt = strings.Clone(word), now
	}
	change := g.judge(now, asked, halted, word)
	until := g.rests(now)
	g.mu.Unlock()
	for _, a := range answers {
		if a.Result.Halt {
			a.Result.Until = push.At(until)
		}
	}
	passed.log(g.log)
	change.log(g.log)
	g.tellBegun(begun)
	if delivered > 0 {
		g.Retries.Earn(now, delivered)
		g.DeadLetters.Earn(now, delivered)
	}
}

// count counts an answer to what was admitted in this state. A refusal of our credentials
// is none to judge the route by: it halts it, and others have credentials of their own. The
// caller holds mu.
func (g *Gate) count(now time.Time, bad bool, r *push.Result) {
	ours := bad && r.Halt
	switch {
	case g.state == gateOpen && !ours:
		g.answer.add(now, bad)
		switch {
		case g.options.Failures == 0:
		case bad:
			g.row.bad(r.Conn, r.Ended)
		case g.row.counted > 0:
			g.row.reset()
		}
	case g.state == gateProbing && bad:
		if !ours {
			g.answer.add(now, bad) // evidence for others; a gate that opens begins anew
		}
		g.probes.bad++
	case g.state == gateProbing:
		g.probes.good++
	}
}

// judge changes the state after answers were counted. The caller holds mu.
func (g *Gate) judge(now time.Time, asked time.Duration, halted bool, word string) gateChange {
	switch {
	case asked > 0:
		return g.close(now, PauseAsked, asked, word)
	case halted:
		return g.close(now, PauseHalted, 0, word)
	case g.state == gateOpen:
		good, bad := g.answer.sums(now)
		switch n := good + bad; {
		case n >= g.options.Answers && float64(bad) > g.options.Share*float64(n):
			return g.close(now, PauseErrors, 0, word)
		case n < g.options.Answers && g.row.proves(g.options.Failures): // of more answers some bad ones are in a row by chance
			return g.close(now, PauseInARow, 0, word)
		}
	case g.state == gateProbing:
		p := &g.probes
		if p.sent > 0 && p.sent == p.good+p.bad {
			g.reported(p.good, p.bad)
		}
		switch {
		case float64(p.bad) > g.options.Share*float64(p.limit):
			return g.close(now, PauseErrors, 0, word)
		case p.good+p.bad < p.limit:
		case p.limit >= g.options.FullProbes:
			return g.open(now)
		default:
			*p = probeRound{number: p.number + 1, limit: min(2*p.limit, g.options.FullProbes), last: now}
		}
	}
	return gateChange{}
}

// advance does what the passing of time does. The caller holds mu.
func (g *Gate) advance(now time.Time) gateChange {
	switch {
	case g.state == gateClosed && !now.Before(g.until):
		if !g.waits(now) {
			g.probe(now, 0, g.options.FirstProbes)
		}
	case g.state == gateProbing && g.probes.sent > g.probes.good+g.probes.bad && !now.Before(g.probes.unansweredBy):
		return g.close(now, PauseErrors, 0, "none")
	}
	return gateChange{}
}

// probe ends a pause with a round of probes. The caller holds mu.
func (g *Gate) probe(now time.Time, number, limit int) {
	g.state, g.probes = gateProbing, probeRound{number: number, limit: min(limit, g.options.FullProbes), last: now}
	g.pass++
}

// close begins a pause, or lengthens the one there is: at least as long as the
// provider asked, and otherwise twice as long as the last one unless that was
// a while ago. The caller holds mu.
func (g *Gate) close(now time.Time, why PauseReason, asked time.Duration, word string) gateChange {
	if why == PauseAsked {
		g.ask(now, asked)
		g.tell(why, now.Add(asked))
	}
	if g.state == gateClosed {
		g.lengthen(now, asked)
		return gateChange{}
	}
	first := g.options.FirstPause
	if why == PauseHalted {
		first = g.options.HaltPause
	}
	pause := first
	if g.state == gateProbing || now.Sub(g.opened) < g.options.HoldSpan {
		pause = min(max(2*g.pause, first), g.options.LongestPause)
	}
	g.pause = pause
	if why == PauseHalted {
		g.tell(why, now.Add(pause))
	}
	return g.stop(now, why, max(pause, asked), word)
}

// stop begins a pause of about this length. The caller holds mu.
func (g *Gate) stop(now time.Time, why PauseReason, length time.Duration, word string) gateChange {
	if g.state == gateOpen {
		g.past.begin(now)
	}
	g.reported(g.probes.good, max(g.probes.bad, 1)) // whatever stops it, they went badly
	g.fleet.since = now
	if g.options.Together && why.judgedByAnswers() {
		g.signal()
	}
	g.state, g.reason = gateClosed, why
	g.halted = why == PauseHalted || why == PauseTold && word == string(PauseHalted)
	g.pass++
	g.shutFor(now, length)
	g.metrics.paused.Set(1)
	g.metrics.pauses[why].Inc()
	return gateChange{gate: g, closed: true, reason: why, word: word, pause: g.until.Sub(now)}
}

// ask notes what the provider asked for. The caller holds mu.
func (g *Gate) ask(now time.Time, length time.Duration) {
	if until := now.Add(length); until.After(g.asked) {
		g.asked = until
	}
}

// lengthen makes the current pause at least this long. The caller holds mu.
func (g *Gate) lengthen(now time.Time, length time.Duration) {
	if now.Add(length).After(g.until) {
		g.shutFor(now, length)
	}
}

// shutFor closes the gate for this long plus jitter, which keeps the workers of
// a fleet from coming back at once. The caller holds mu.
func (g *Gate) shutFor(now time.Time, length time.Duration) {
	spread := min(length/10, longestSpread)
	g.until, g.latest = now.Add(length+g.options.Jitter(spread)), now.Add(length+spread)
	g.shut.Store(int64(g.until.Sub(g.born)))
}

// open ends the pause. The caller holds mu.
func (g *Gate) open(now time.Time) gateChange {
	since := g.past.since
	g.past.end(now)
	g.state, g.opened = gateOpen, now
	g.pass++
	g.answer.reset()
	g.row.reset()
	g.metrics.paused.Set(0)
	return gateChange{gate: g, reason: g.reason, pause: now.Sub(since)}
}

// gateChange is a change of state to be logged.
type gateChange struct {
	gate   *Gate
	closed bool
	reason PauseReason
	word   string // the provider's own
	pause  time.Duration
}

func (c gateChange) log(log *slog.Logger) {
	switch {
	case c.gate == nil:
	case !c.closed:
		log.Info("route open again", "route", c.gate.route.String(), "paused", c.pause.Round(time.Millisecond))
	case c.reason == PauseHalted:
		log.Error("route halted: the provider refuses our credentials or configuration", "route", c.gate.route.String(), "answer", c.word, "probe_in", c.pause.Round(time.Millisecond))
	default:
		log.Warn("route paused", "route", c.gate.route.String(), "reason", string(c.reason), "answer", c.word, "probe_in", c.pause.Round(time.Millisecond))
	}
}
