package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// The pauses between two attempts to reach a store, and between two checks of a
// store that has been reached.
const (
	firstAttemptPause = 200 * time.Millisecond
	longAttemptPause  = 5 * time.Second
	checkPause        = 2 * time.Second
	checkTimeout      = 2 * time.Second
)

// connect tries until it succeeds or ctx ends. Until then the log and /readyz name
// the store that is away, with its address.
func connect(ctx context.Context, log *slog.Logger, h *health, name, where string, attempt func(context.Context) error) error {
	backoff := push.Backoff{First: firstAttemptPause, Longest: longAttemptPause}
	for n := 1; ; n++ {
		err := attempt(ctx)
		h.set(name, err)
		if err == nil {
			log.Info("connected", "to", name, "at", where, "attempts", n)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause := backoff.After(n)
		log.Warn("cannot connect, retrying", "to", name, "at", where, "attempt", n, "in", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connectAll runs the attempts side by side and returns the first error, which
// can only be the end of ctx.
func connectAll(attempts ...func() error) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(attempts))
	for _, a := range attempts {
		wg.Go(func() { errs <- a() })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkStore checks a store at intervals until ctx ends, so that /readyz says when the
// store is away while the worker runs.
func checkStore(ctx context.Context, h *health, name string, look func(context.Context) error) {
	ticker := time.NewTicker(checkPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			look1, cancel := context.WithTimeout(ctx, checkTimeout)
			err := look(look1)
			cancel()
			if ctx.Err() == nil {
				h.set(name, err)
			}
		}
	}
}
