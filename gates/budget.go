package gates

import (
	"errors"
	"math"
	"sync"
	"time"
)

// BudgetOptions say how a Budget fills.
type BudgetOptions struct {
	Share float64 // tokens that one success earns, from 0
	Floor float64 // tokens a second that need no success; above 0, so that nothing waits for ever
	Burst float64 // the most tokens it holds, at least 1
}

func (o *BudgetOptions) check() error {
	if !(o.Share >= 0) || !(o.Floor > 0) || !(o.Burst >= 1) || math.IsInf(o.Share+o.Floor+o.Burst, 0) {
		return errors.New("the share must not be negative, the floor positive, and the burst at least 1")
	}
	return nil
}

// defaultRetryBudget lets retries be 10 % of what succeeds, and 10 a second
// besides: an outage is not amplified. The burst is what a fifth of a second
// earns at 100,000 successes a second: a waiting sender asks again sooner than
// that.
func defaultRetryBudget() BudgetOptions { return BudgetOptions{Share: 0.1, Floor: 10, Burst: 2000} }

// defaultDeadLetterBudget lets one in a hundred successes pay for a last
// attempt that may end in the DLQ, and one a second besides: a provider's
// outage, in which nothing succeeds, cannot empty a topic into the DLQ.
func defaultDeadLetterBudget() BudgetOptions { return BudgetOptions{Share: 0.01, Floor: 1, Burst: 100} }

// Budget is a token bucket that successes fill. Time is passed in, and may
// stand still; going back does nothing. All methods may be called at once.
type Budget struct {
	options BudgetOptions

	mu     sync.Mutex
	tokens float64
	at     time.Time // up to when the floor has been paid
}

// newBudget makes a full Budget. The options must be valid (see Options).
func newBudget(o BudgetOptions, now time.Time) *Budget {
	return &Budget{options: o, tokens: o.Burst, at: now}
}

// Earn adds what n successes are worth.
func (b *Budget) Earn(now time.Time, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.put(b.options.Share * float64(n))
}

// Take takes up to n tokens and returns how many it got. If that is less than
// n, again is when the floor alone will have earned the next one: successes
// may earn it sooner.
func (b *Budget) Take(now time.Time, n int) (granted int, again time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	granted = max(min(n, int(b.tokens)), 0)
	b.tokens -= float64(granted)
	if granted < n {
		// Rounded up by slightly more than the floating-point error.
		missing := (1 - b.tokens) / b.options.Floor
		again = now.Add(time.Duration(missing*float64(time.Second)) + time.Microsecond)
	}
	return granted, again
}

// Return gives back n tokens that were taken and not used: the attempt was not
// made, or did not need the DLQ.
func (b *Budget) Return(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(float64(n))
}

// fill pays the floor up to now. The caller holds mu.
func (b *Budget) fill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.put(b.options.Floor * passed.Seconds())
		b.at = now
	}
}

func (b *Budget) put(tokens float64) { b.tokens = min(b.tokens+tokens, b.options.Burst) }
