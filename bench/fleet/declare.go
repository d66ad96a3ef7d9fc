//go:build unix

package fleet

import (
	"context"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/wiring"
)

// DeclareNew makes whole dedupe filters, as `pushctl dedupe declare-new` does:
// without it, those of a new Redis answer "maybe" for their first minutes.
func (f *Fleet) DeclareNew(ctx context.Context) error {
	filter, err := dedupe.New(f.redis, wiring.Filter(f.Config))
	if err != nil {
		return err
	}
	return filter.DeclareNew(ctx)
}

// Populate makes topics and schema, declares the installation new, and returns when all users of
// a crowd are in Redis, by a registry that has ended then.
func (f *Fleet) Populate(ctx context.Context, c *crowd.Crowd) error {
	if err := f.Prepare(ctx); err != nil {
		return err
	}
	if err := f.DeclareNew(ctx); err != nil {
		return err
	}
	registry, err := f.StartRegistry()
	if err != nil {
		return err
	}
	if err := f.Register(ctx, c); err != nil {
		return err
	}
	if err := f.AwaitUsers(ctx, c); err != nil {
		return err
	}
	_, err = registry.Term(ctx)
	return err
}
