package pipeline

import "time"

// charge is what an attempt has to pay before it is made: so an outage is not
// amplified by retries, and does not empty a topic into the DLQ. An attempt
// waits for its tokens behind those of the same charge only.
type charge uint8

const (
	chargeNone    charge = iota // first attempts, and what was held
	chargeRetry                 // a token of the route's retry budget
	chargeLastTry               // that, and one of its DLQ limiter: a failure ends there
	charges                     // how many there are
)

// String is its name where lines are told of; empty for none.
func (c charge) String() string { return [charges]string{"", "retry", "last_try"}[c] }

func (p *Pipeline) chargeOf(it *Item) charge {
	switch {
	case it.Attempt == 0:
		return chargeNone
	case it.Attempt < p.Policy.MaxRetries:
		return chargeRetry
	}
	return chargeLastTry
}

// pay takes what n attempts cost and returns how many of them it was enough
// for; if for none, also when to try again and which tokens there were none of.
func (c charge) pay(now time.Time, g *Gate, n int) (paid int, again time.Time, why string) {
	if c == chargeNone {
		return n, time.Time{}, ""
	}
	paid, again = g.Retries.Take(now, n)
	if c == chargeRetry || paid == 0 {
		return paid, again, stallRetries
	}
	able, again := g.DeadLetters.Take(now, paid)
	g.Retries.Return(paid - able)
	return able, again, stallDead
}

// turn is how long the attempt behind n others waits for its tokens, if nothing
// succeeds meanwhile.
func (c charge) turn(g *Gate, n int) time.Duration {
	rate := g.options.Retries.Floor
	if c == chargeLastTry {
		rate = min(rate, g.options.DeadLetters.Floor)
	}
	return time.Duration(min(float64(n)/rate, longestHold.Seconds()) * float64(time.Second))
}

// refund gives back what n attempts paid that were not made after all: the next
// time they pay again.
func (c charge) refund(g *Gate, n int) {
	if c >= chargeRetry {
		g.Retries.Return(n)
	}
	if c == chargeLastTry {
		g.DeadLetters.Return(n)
	}
}
