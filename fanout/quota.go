package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Quota bounds how many receivers the messages of a sender have in a day. It is safe for
// concurrent use.
type Quota interface {
	// Spend asks whether a part of a message may reach upTo receivers in all, of which had
	// it has reached, as whoever asks knows: by what its chunk says and by what was answered
	// since, on whatever day. It returns up to how many it may, at least had. What was
	// counted of a part is not counted again: whoever does a chunk anew may ask anew.
	Spend(ctx context.Context, sender string, message [16]byte, part int, had, upTo int64) (int64, error)
	// Limits reports whether a sender has a limit at all.
	Limits(sender string) bool
	// Settle forgets what was counted of a part that has ended. The day's sum stays.
	Settle(ctx context.Context, sender string, message [16]byte, part int) error
}

// errSpent says that a chunk's sender may reach no more receivers today, and errUnasked that
// nobody can say whether it may.
var (
	errSpent   = errors.New("its sender may reach no more receivers today")
	errUnasked = errors.New("nobody says how many receivers its sender may reach")
)

// askAgain is how long a sender of whom nothing was left is not asked for again. Its chunks
// come out of the hold every HoldFor, all day, and each would read a page of receivers for
// nothing, in the way of others.
const askAgain = 30 * time.Second

// isSpent reports whether nothing was left of a sender just now.
func (e *Emitter) isSpent(sender string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.spent[sender])
}

// noteSpent notes that nothing is left of a sender.
func (e *Emitter) noteSpent(sender string) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.spent, func(_ string, until time.Time) bool { return !now.Before(until) })
	e.spent[sender] = now.Add(askAgain)
}

// afford returns those of the members whom the sender may still reach, in their order, from
// the first one on. spent says that these are not all.
func (e *Emitter) afford(ctx context.Context, c *Chunk, members []Member, so *Counts) (may []Member, spent bool, err error) {
	if e.Quota == nil {
		return members, false, nil
	}
	now := time.Now()
	var wanted int64
	for i := range members {
		if c.wants(&members[i], now) {
			wanted++
		}
	}
	if wanted == 0 {
		return members, false, nil
	}
	upTo, err := e.Quota.Spend(ctx, c.Sender, c.Message, c.Part, so.Emitted, so.Emitted+wanted)
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: asking for sender %s: %w", errUnasked, c.Sender, err)
	}
	left := upTo - so.Emitted
	if left >= wanted {
		return members, false, nil
	}
	for i := range members {
		if !c.wants(&members[i], now) {
			continue
		}
		if left--; left < 0 {
			e.noteSpent(c.Sender)
			return members[:i], true, nil
		}
	}
	return members, false, nil
}

// settle tells the quota that a part has ended. What it keeps of one of which it does not
// hear ends with the day.
func (e *Emitter) settle(ctx context.Context, c *Chunk) {
	if e.Quota == nil {
		return
	}
	if err := e.Quota.Settle(ctx, c.Sender, c.Message, c.Part); err != nil && ctx.Err() == nil {
		e.Log.Warn("a part of a fan-out has ended, and its sender's limit could not be told", "sender", c.Sender, "error", err)
	}
}
