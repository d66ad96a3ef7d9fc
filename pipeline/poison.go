package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/pushfleet/pushfleet/push"
)

// PoisonTries is how often one item, alone with our code, may make it panic before
// the item is dead: a single panic may be a coincidence.
const PoisonTries = 3

const (
	// A stage that panics on more than fewPoisoned items, and on more than one in
	// poisonedShare, is itself at fault. Then the stage fails, its partition waits
	// and an alert is raised, instead of all items going to the DLQ.
	fewPoisoned   = 10
	poisonedShare = 10
)

func mostPoisoned(n int) int { return max(fewPoisoned, n/poisonedShare) }

// TooManyPoisoned reports whether so many of n items or sends panicked that our code
// must be at fault, and not they.
func TooManyPoisoned(panicked, n int) bool { return panicked > mostPoisoned(n) }

// Poisoned is what Contain caught in one batch.
type Poisoned struct {
	First  *push.PanicError
	Panics int     // how many were caught
	Dead   []*Item // decided Dead because of them
}

// Contain applies the stage to the batch and survives its panics. It searches by
// halves for the items that cause them. An item that makes the stage panic three
// times on its own is decided Dead (Panicked, with the stage's name as detail); all
// others have then been through the stage. So the stage sees parts of the batch, and
// some items more than once.
//
// The error is the stage's own, and the whole batch must be applied again; or a
// *PanicError if the stage panics on so many items that it is itself at fault: then
// no item is decided. If anything was caught, caught is called once before Contain
// returns. Panics in goroutines that the stage starts cannot be caught.
func Contain(ctx context.Context, s Stage, b *Batch, caught func(Poisoned)) error {
	err := survived(s.Name(), func() error { return s.Apply(ctx, b) })
	first, ok := errors.AsType[*push.PanicError](err)
	if !ok {
		return err
	}
	c := containment{ctx: ctx, stage: s, batch: b, most: mostPoisoned(len(b.Items)), found: Poisoned{First: first, Panics: 1}}
	defer func() { caught(c.found) }()
	if err := c.search(0, len(b.Items)); err != nil {
		return err
	}
	for _, it := range c.suspects {
		it.Decide(push.Dead, push.Panicked, string(s.Name()))
	}
	c.found.Dead = c.suspects
	return nil
}

// containment is the search for what makes a stage panic.
type containment struct {
	ctx      context.Context
	stage    Stage
	batch    *Batch
	most     int // how many items may be at fault
	suspects []*Item
	found    Poisoned
}

// search finds the items at fault in [from, to), on which the stage has just
// panicked.
func (c *containment) search(from, to int) error {
	if to-from == 1 {
		return c.alone(from)
	}
	middle := from + (to-from)/2
	for _, half := range [...][2]int{{from, middle}, {middle, to}} {
		panicked, err := c.apply(half[0], half[1])
		if err == nil && panicked != nil {
			err = c.search(half[0], half[1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// alone applies the stage again to one item, on which it has panicked once.
func (c *containment) alone(i int) error {
	for try := 1; try < PoisonTries; try++ {
		if panicked, err := c.apply(i, i+1); err != nil || panicked == nil {
			return err
		}
	}
	if len(c.suspects) == c.most {
		return fmt.Errorf("more than %d of %d items at fault, so the stage is: %w", c.most, len(c.batch.Items), c.found.First)
	}
	c.suspects = append(c.suspects, &c.batch.Items[i])
	return nil
}

// apply applies the stage to a part of the batch.
func (c *containment) apply(from, to int) (*push.PanicError, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	part := *c.batch
	part.Items = c.batch.Items[from:to:to]
	err := survived(c.stage.Name(), func() error { return c.stage.Apply(c.ctx, &part) })
	if p, ok := errors.AsType[*push.PanicError](err); ok {
		c.found.Panics++
		return p, nil
	}
	return nil, err
}
