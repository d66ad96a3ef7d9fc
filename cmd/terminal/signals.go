package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal returns a context that the first SIGINT or SIGTERM ends. Whoever
// sees it ended can rely on it that the next signal does what it does by
// default: it ends the process at once. stop releases what it holds.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2) // a second one may come before the first was seen; never closed
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ended := make(chan struct{}) // closed by the goroutine
	go func() {
		defer close(ended)
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel()
		select {
		case s := <-signals:
			raise(s)
		default:
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// raise sends this process a signal that it has taken out of turn.
func raise(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(s) // it is there
	}
}
