package pipeline

import "context"

// Stage moves a batch one step on. It gives a verdict to the items it can
// decide and leaves the others undecided. It never adds, removes or reorders
// items, and keeps no hold of b after it returns.
//
// An error means the step could not be done at all (store down, ctx over), and
// never says anything about an item. The same batch is then applied again, so
// a stage must bear repeating. Apply is called by several goroutines at once,
// never twice at once with the same batch.
type Stage interface {
	Name() string
	Apply(ctx context.Context, b *Batch) error
}
