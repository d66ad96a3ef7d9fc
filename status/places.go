package status

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// places bounds the confirm queries in flight, in eighths of a full one,
// because a query of a single id costs the server little. All methods may be
// called at once.
type places struct {
	free     *semaphore.Weighted
	patience time.Duration   // with a store that does not answer
	trouble  func() error    // what the store's latest request met
	life     context.Context // ends when the store is closed
}

// newPlaces has room for this many full queries.
func newPlaces(queries int, patience time.Duration, trouble func() error, life context.Context) *places {
	return &places{free: semaphore.NewWeighted(int64(queries * fullWeight)), patience: patience, trouble: trouble, life: life}
}

// take waits for a place of this weight: without limit while the store answers,
// and for at most its patience otherwise.
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
