package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// waking is how often a polled client is woken, and how long one poll waits at most.
const waking = time.Second

// waker polls a client and keeps it fetching. It is not safe for concurrent use.
//
// The client can lose its own wake-up. When offsets are set or partitions change, it
// ends its consumer session and begins another. A fetch loop that starts in between
// (source.loopFetch of kgo v1.22.2) can note that it works for the old session, which
// keeps the new one from starting a loop, and then end with the old one. Nothing of
// that broker is fetched from then on, without an error, until something else wakes it.
type waker struct {
	client *kgo.Client
	woken  time.Time // when it was last woken
}

// poll returns at most limit records. It waits for some until ctx ends, or waking
// has passed.
func (w *waker) poll(ctx context.Context, limit int) kgo.Fetches {
	polling, cancel := context.WithTimeout(ctx, waking)
	defer cancel()
	fetches := w.client.PollRecords(polling, limit)
	// Also if records came: another broker's may not.
	if now := time.Now(); now.Sub(w.woken) >= waking {
		w.client.ResumeFetchPartitions(nil) // resumes none, and wakes all
		w.woken = now
	}
	return fetches
}

// wait polls until there are records or an error, or ctx ends. Between its polls the
// group may rebalance.
func (w *waker) wait(ctx context.Context, limit int) kgo.Fetches {
	for {
		fetches := w.poll(ctx, limit)
		if ctx.Err() != nil || fetches.NumRecords() > 0 || !timedOut(fetches) {
			return fetches
		}
		w.client.AllowRebalance()
	}
}

// timedOut reports whether a poll's errors only say that its time was over.
func timedOut(fetches kgo.Fetches) bool {
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.DeadlineExceeded) {
			return false
		}
	}
	return true
}
