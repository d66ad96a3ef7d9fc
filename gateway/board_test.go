package gateway

import (
	"context"
	"sync"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// board is a store of topics in memory that can be away.
type board struct {
	*subscriptions.Memory

	mu    sync.Mutex
	err   error // guarded by mu; of every call
	after int   // guarded by mu; so many changes are made before err; 0 = none
	hang  bool  // guarded by mu; calls end with their contexts alone
	made  int   // guarded by mu; changes
}

func newBoard() *board { return &board{Memory: subscriptions.NewMemory(nil)} }

// set changes it.
func (b *board) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *board) fails(ctx context.Context) error {
	b.mu.Lock()
	hang, err := b.hang, b.err
	b.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// Create implements Topics.
func (b *board) Create(ctx context.Context, t *subscriptions.Topic) (subscriptions.Topic, bool, error) {
	if err := b.fails(ctx); err != nil {
		return subscriptions.Topic{}, false, err
	}
	return b.Memory.Create(ctx, t)
}

// Topic implements Topics. It is known while changes fail later.
func (b *board) Topic(ctx context.Context, name string) (subscriptions.Topic, error) {
	b.mu.Lock()
	later := b.after > 0
	b.mu.Unlock()
	if !later {
		if err := b.fails(ctx); err != nil {
			return subscriptions.Topic{}, err
		}
	}
	return b.Memory.Topic(ctx, name)
}

// Topics implements Topics.
func (b *board) Topics(ctx context.Context, apps []string, after string, limit int) ([]subscriptions.Topic, error) {
	if err := b.fails(ctx); err != nil {
		return nil, err
	}
	return b.Memory.Topics(ctx, apps, after, limit)
}

// Close implements Topics.
func (b *board) Close(ctx context.Context, name string) (subscriptions.Topic, error) {
	if err := b.fails(ctx); err != nil {
		return subscriptions.Topic{}, err
	}
	return b.Memory.Close(ctx, name)
}

// Apply implements Topics.
func (b *board) Apply(ctx context.Context, t *subscriptions.Topic, changes []subscriptions.Change) []subscriptions.Result {
	results := make([]subscriptions.Result, len(changes))
	for i := range changes {
		b.mu.Lock()
		b.made++
		fails := b.made > b.after
		b.mu.Unlock()
		if fails {
			if results[i].Err = b.fails(ctx); results[i].Err != nil {
				continue
			}
		}
		results[i] = b.Memory.Apply(ctx, t, changes[i:i+1])[0]
	}
	return results
}

// Run implements Topics.
func (b *board) Run(ctx context.Context, topic string, l subscriptions.Layout, first, last int, after subscriptions.Position, limit int) ([]subscriptions.Subscription, subscriptions.Position, bool, error) {
	if err := b.fails(ctx); err != nil {
		return nil, after, false, err
	}
	return b.Memory.Run(ctx, topic, l, first, last, after, limit)
}

// Subscription implements Topics.
func (b *board) Subscription(ctx context.Context, topic, user string) (subscriptions.Subscription, error) {
	if err := b.fails(ctx); err != nil {
		return subscriptions.Subscription{}, err
	}
	return b.Memory.Subscription(ctx, topic, user)
}

// OfUser implements Topics.
func (b *board) OfUser(ctx context.Context, user, after string, limit int) ([]subscriptions.Membership, error) {
	if err := b.fails(ctx); err != nil {
		return nil, err
	}
	return b.Memory.OfUser(ctx, user, after, limit)
}
