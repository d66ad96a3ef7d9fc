package gates

import "time"

// Charge is what an attempt has to pay before it is made, so that retries do
// not amplify an outage and an outage does not empty a topic into the DLQ.
type Charge uint8

// The charges. An attempt waits for tokens only behind attempts with the same
// charge.
const (
	Free    Charge = iota // first attempts, and what was held
	Retry                 // a token of the route's retry budget
	LastTry               // a retry token and one of the route's DLQ limiter: a failure ends in the DLQ
)

// Charges is how many there are, numbered from 0.
const Charges = int(LastTry) + 1

// String is its name in logs and metrics; empty for Free.
func (c Charge) String() string { return [Charges]string{"", "retry", "last_try"}[c] }

// Lack says what Admit is short of when it lets nothing through. It is the name
// of a stall.
type Lack string

// The possible lacks.
const (
	RouteStopped  Lack = "route_paused"
	NoRetryTokens Lack = "retry_budget"
	NoDeadLetters Lack = "dead_letter_budget"
	RateSpent     Lack = "rate"
	LimitSpent    Lack = "fleet_limit" // a gate never says so: its caller asks for it before
)

// OfRate reports whether sends are short of how fast they may follow each other, and
// of nothing that more of them would wear out.
func (l Lack) OfRate() bool { return l == RateSpent || l == LimitSpent }

// pay takes the tokens for n attempts and returns for how many of them there
// were enough. If for none, it also returns when to try again and what was
// lacking.
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

// Turn is how long an attempt behind n others of its charge waits for its
// tokens if nothing succeeds meanwhile; at most an hour.
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

// Patience is how long an attempt waits for tokens before it should be held.
func (g *Gate) Patience() time.Duration { return g.options.HoldAfter }
