package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal returns a context that the first SIGINT or SIGTERM ends. Once it
// has ended, the next signal has its default effect: it ends the process at once.
// stop ends the context and waits for the goroutine behind it.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	// Buffered, capacity 2: a second signal may arrive before the first is read.
	// Never closed.
	signals := make(chan os.Signal, 2)
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

// raise sends this process a signal again that signal.Notify has intercepted.
func raise(s os.Signal) {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(s) // this process exists
	}
}
