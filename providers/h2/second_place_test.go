package h2

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A place whose dial failed does not dial again for a long time. For waiting
// requests, another place dials at once.
func TestAnotherPlaceDialsWhereOneFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.answerAll()
		dials := 0
		p := open(t, Options{
			URL: "https://push.example", Connections: 2, Timeout: 3 * time.Hour, Backoff: time.Hour, MaxBackoff: time.Hour,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials++; dials == 1 { // one after the other
					return nil, errors.New("refused")
				}
				return s.dial(ctx, network, address)
			},
			secure: func(_ context.Context, c net.Conn) (net.Conn, error) { return c, nil },
		})
		synctest.Wait() // both places have found nothing to do
		start := time.Now()
		r := post("/a")
		submit(t, p, r).wait()
		if took := time.Since(start); r.Outcome != Answered || took > time.Second {
			t.Errorf("%v, %v after %v", r.Outcome, r.Err, took)
		}
	})
}
