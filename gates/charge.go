package gates

import "time"

// Charge is what an attempt has to pay before it is made: so an outage is not
// amplified by retries, and does not empty a topic into the DLQ.
type Charge uint8

// The charges. An attempt waits for its tokens behind those of the same one only.
const (
	Free    Charge = iota // first attempts, and what was held
	Retry                 // a token of the route's retry budget
	LastTry               // that, and one of its DLQ limiter: a failure ends there
)

// Charges is how many there are, numbered from 0.
const Charges = int(LastTry) + 1

// String is its name where lines are told of; empty for Free.
func (c Charge) String() string { return [Charges]string{"", "retry", "last_try"}[c] }

// Lack is why Admit lets nothing through; the name of a stall.
type Lack string

// What there may be none of.
const (
	RouteStopped  Lack = "route_paused"
	NoRetryTokens Lack = "retry_budget"
	NoDeadLetters Lack = "dead_letter_budget"
)

// pay takes what n attempts cost and returns how many of them it was enough
// for; if for none, also when to try again and what there was none of.
func (c Charge) pay(now time.Time, g *Gate, n int) (paid int, again time.Time, lack Lack) {
	if c == Free {
		return n, time.Time{}, ""
	}
	paid, again = g.Retries.Take(now, n)
	if c == Retry || paid == 0 {
		return paid, again, NoRetryTokens
	}
	able, again := g.DeadLetters.Take(now, paid)
	g.Retries.Return(paid - able)
	return able, again, NoDeadLetters
}

// refund gives back what n attempts paid.
func (c Charge) refund(g *Gate, n int) {
	if c >= Retry {
		g.Retries.Return(n)
	}
	if c == LastTry {
		g.DeadLetters.Return(n)
	}
}

// longestTurn is the most that Turn answers.
const longestTurn = time.Hour

// Turn is how long the attempt behind n others of its charge waits for its
// tokens, if nothing succeeds meanwhile; an hour at the most.
func (g *Gate) Turn(c Charge, n int) time.Duration {
	if c == Free {
		return 0
	}
	rate := g.options.Retries.Floor
	if c == LastTry {
		rate = min(rate, g.options.DeadLetters.Floor)
	}
	return time.Duration(min(float64(n)/rate, longestTurn.Seconds()) * float64(time.Second))
}

// Patience is how long what lacks tokens waits before it had better be held.
func (g *Gate) Patience() time.Duration { return g.options.HoldAfter }
