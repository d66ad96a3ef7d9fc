package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// GivenUpError says that the context ended before a call was answered for good.
type GivenUpError struct {
	// IDs are of the notifications that have no answer. Each may be accepted all the same:
	// to be sure send it again with its id, and it is pushed once.
	IDs      []string
	Attempts int
	Err      error // of the last attempt
	Cause    error // why the context ended
}

// Error implements error.
func (e *GivenUpError) Error() string {
	what := "given up"
	switch len(e.IDs) {
	case 0:
	case 1:
		what = "given up on " + e.IDs[0] + ", which may be accepted (repeat it with this id)"
	default:
		what = fmt.Sprintf("given up on %d messages, which may be accepted (repeat them with their ids), the first is %s", len(e.IDs), e.IDs[0])
	}
	return fmt.Sprintf("%s after %d attempts: %v: %v", what, e.Attempts, e.Cause, e.Err)
}

// Unwrap gives both errors.
func (e *GivenUpError) Unwrap() []error { return []error{e.Err, e.Cause} }

// repeat makes attempts until one needs no other, or ctx ends. attempt returns nil, or an
// error, and says for how long the gateway asks to wait at least, or that there is no use.
// ids are those of what is still open.
func (c *Client) repeat(ctx context.Context, ids func() []string, attempt func() error) error {
	backoff := c.o.Backoff
	for n := 1; ; n++ {
		if ctx.Err() != nil && n == 1 {
			return context.Cause(ctx) // nothing was sent
		}
		err := attempt()
		if err == nil {
			return nil
		}
		var p *Problem
		if errors.As(err, &p) && !p.again() {
			return err
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		if p != nil {
			wait += time.Duration(p.RetryAfter) * time.Second // not all at the same moment
		}
		if pauseErr := c.pause(ctx, wait); pauseErr != nil {
			return &GivenUpError{IDs: ids(), Attempts: n, Err: err, Cause: pauseErr}
		}
		backoff = min(2*backoff, c.o.MaxBackoff)
	}
}

// pause waits. It does not begin to when ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	if until, bounded := ctx.Deadline(); bounded && time.Until(until) < d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxRetryAfter is the longest pause that is asked for and kept, in seconds.
const maxRetryAfter = 24 * 60 * 60

// retryAfter reads seconds or a date (RFC 9110, 10.2.3); 0 = neither.
func retryAfter(value string) int {
	if s, err := strconv.Atoi(value); err == nil {
		return min(max(s, 0), maxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(int(time.Until(at)/time.Second)+1, 0), maxRetryAfter)
	}
	return 0
}
