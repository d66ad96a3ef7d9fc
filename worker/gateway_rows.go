package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// lateRows is the status store, which may not be open yet. It is safe for concurrent use.
type lateRows struct {
	mu    sync.RWMutex
	store Status // guarded by mu; nil = it is not open
	err   error  // guarded by mu; why
}

func (r *lateRows) set(store Status, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err == nil {
		r.store = store
	}
}

// Read implements gateway.Rows.
func (r *lateRows) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	r.mu.RLock()
	store, err := r.store, r.err
	r.mu.RUnlock()
	if store == nil {
		return nil, fmt.Errorf("the status store is not open: %w", err)
	}
	return store.Read(ctx, ids)
}

func (r *lateRows) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store != nil {
		r.store.Close()
		r.store = nil
		r.err = status.ErrClosed
	}
}
