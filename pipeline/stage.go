package pipeline

import "context"

// Stage takes a batch one step further. It gives a verdict to the items that it can
// decide and leaves the others undecided. It never adds, removes or reorders items,
// and does not keep b after it returns.
//
// An error means that the step could not be done at all (a store is down, ctx
// ended); it never says anything about an item. Then the stage is applied to the
// same batch again, so it must be repeatable. Several goroutines call Apply at
// once, but never with the same batch.
type Stage interface {
	Name() string
	Apply(ctx context.Context, b *Batch) error
}
