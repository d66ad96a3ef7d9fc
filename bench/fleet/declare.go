//go:build unix

package fleet

import (
	"context"

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
