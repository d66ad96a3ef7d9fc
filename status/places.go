package status

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// places are those of the confirm queries under way, in eighths of one that is
// full, as a query of a single id is little to the server. All methods may be
// called at once.
type places struct {
	free     *semaphore.Weighted
	patience time.Duration   // with a store that does not answer
	trouble  func() error    // what the store's latest request met
	life     context.Context // ends when the store is closed
}

// newPlaces has room for so many full queries.
func newPlaces(queries int, patience time.Duration, trouble func() error, life context.Context) *places {
	return &places{free: semaphore.NewWeighted(int64(queries * fullWeight)), patience: patience, trouble: trouble, life: life}
}

// take waits for a place of this weight: as long as it takes while the store
// answers, and within its patience otherwise.
func (p *places) take(ctx context.Context, weight int) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, p.patience)
		unhook := context.AfterFunc(p.life, cancel)
		err := p.free.Acquire(waiting, int64(weight))
		unhook()
		cancel()
		switch {
		case err == nil:
			return nil
		case p.life.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if err := p.trouble(); err != nil {
			return err
		}
	}
}

func (p *places) leave(weight int) { p.free.Release(int64(weight)) }
