//go:build !planted

package main

import (
	"context"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/status"
)

// plant changes nothing. With the build tag planted it spoils what a pipeline
// works with, so that bench/mutants can show that its checkers notice.
func plant(_ routes, o pipeline.Options) pipeline.Options { return o }

// openStatus opens the status store.
func openStatus(ctx context.Context, o status.Options) (openedStatus, error) {
	c, err := status.OpenCassandra(ctx, o)
	if err != nil {
		return nil, err // not the nil pointer: as an interface it would be something
	}
	return c, nil
}
