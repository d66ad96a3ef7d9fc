package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

// frame is an error answer of a server.
type frame struct {
	code int
	text string
}

func (f frame) Code() int       { return f.code }
func (f frame) Message() string { return f.text }
func (f frame) Error() string   { return f.text }

// T-26: each of these means "not yet durable". It is tried again until it is
// acknowledged, and never counts as success. Those that report overload, or
// replicas that are down, halve the batches in flight.
func TestEveryFailureIsTriedAgain(t *testing.T) {
	for _, tt := range []struct {
		err   error
		class failure
		halve bool
	}{
		{frame{gocql.ErrCodeWriteTimeout, "received only 0 of 2"}, timedOut, true},
		{frame{gocql.ErrCodeReadTimeout, "received only 1 of 2"}, timedOut, true},
		{gocql.ErrTimeoutNoResponse, timedOut, true},
		{context.DeadlineExceeded, timedOut, true},
		{gocql.ErrNoStreams, timedOut, true},
		{frame{gocql.ErrCodeOverloaded, "too many requests"}, overloaded, true},
		{frame{gocql.ErrCodeUnavailable, "2 required but only 1 alive"}, unavailable, true},
		{frame{gocql.ErrCodeBootstrapping, "joining"}, unavailable, true},
		{frame{gocql.ErrCodeWriteFailure, "1 failed"}, unavailable, true},
		{gocql.ErrNoConnections, unconnected, false},
		{gocql.ErrConnectionClosed, unconnected, false},
		{gocql.ErrSessionClosed, unconnected, false},
		{&net.OpError{Op: "write", Err: errors.New("broken pipe")}, unconnected, false},
		{fmt.Errorf("write tcp: %w", errors.ErrUnsupported), refused, false},
		{frame{gocql.ErrCodeUnauthorized, "no MODIFY"}, refused, false},
		{frame{gocql.ErrCodeInvalid, "unconfigured table"}, refused, false},
		{frame{gocql.ErrCodeServer, "internal"}, refused, false},
	} {
		t.Run(tt.err.Error(), func(t *testing.T) {
			if got := classify(tt.err); got != tt.class {
				t.Errorf("classify = %v, want %v", got, tt.class)
			}
			synctest.Test(t, func(t *testing.T) {
				s := &server{answer: func(_ context.Context, n int, _ int64) error {
					if n <= 3 {
						return tt.err
					}
					return nil
				}}
				g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 8 })
				start := time.Now()
				if err := g.write(t.Context(), rowsOf("a1", "a2")); err != nil {
					t.Fatal(err)
				}
				if got := idsIn(s.batches); got != "a1 a2" || s.attempts() != 4 {
					t.Errorf("acknowledged %q after %d attempts, want all rows after 4", got, s.attempts())
				}
				if took := time.Since(start); took < 10*time.Millisecond+(25+50+100)*time.Millisecond {
					t.Errorf("three attempts failed within %v: no back-off", took)
				}
				if got := g.flow.limit < g.flow.most; got != tt.halve {
					t.Errorf("limit is %d of %d, lowered should be %v", g.flow.limit, g.flow.most, tt.halve)
				}
			})
		})
	}
}

func TestBucketThatIsDownHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &server{answer: func(_ context.Context, _ int, bucket int64) error {
			if bucket == 'a' && down.Load() {
				return frame{gocql.ErrCodeUnavailable, "down"}
			}
			return nil
		}}
		g := testMerger(t, s, func(o *mergeOptions) { o.concurrency = 2 })
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if err := g.write(t.Context(), rowsOf(fmt.Sprint("a", i))); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(20 * time.Millisecond) // a batch of its own each time
		}
		start := time.Now()
		if err := g.write(t.Context(), rowsOf("b1")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("a healthy bucket waited %v behind one that is down", took)
		}
		down.Store(false)
		wg.Wait()
		if got := len(s.batches); got != 11 {
			t.Errorf("%d batches acknowledged, want all 11", got)
		}
	})
}
