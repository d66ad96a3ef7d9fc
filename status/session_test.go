package status

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

// testCluster has a session that is only a placeholder.
func testCluster() *cluster {
	ctx, stop := context.WithCancel(context.Background())
	opts := Options{Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
	return &cluster{opts: opts, ctx: ctx, stop: stop, sick: make(chan struct{}, 1), replaced: func() {}, link: &link{}}
}

// sickAfter reports whether a session that met only this error for so long is
// to be replaced.
func sickAfter(c *cluster, err error, long time.Duration) bool {
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		c.observe(c.link, classify(err), err)
	}
	return len(c.sick) > 0
}

// A session is replaced when it gets no answers. A server that reports slow
// replicas or overload does answer, and a new session would only add to its
// load.
func TestSessionThatIsAnsweredStays(t *testing.T) {
	for _, tt := range []struct {
		err  error
		sick bool
	}{
		{gocql.ErrTimeoutNoResponse, true},
		{context.DeadlineExceeded, true},
		{noAnswer(context.DeadlineExceeded, time.Second), true},
		{gocql.ErrNoConnections, true},
		{gocql.ErrConnectionClosed, true},
		{frame{gocql.ErrCodeWriteTimeout, "received only 1 of 2"}, false},
		{frame{gocql.ErrCodeReadTimeout, "received only 1 of 2"}, false},
		{frame{gocql.ErrCodeOverloaded, "too many requests"}, false},
		{frame{gocql.ErrCodeUnavailable, "2 required but only 1 alive"}, false},
		{nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			if sick := sickAfter(testCluster(), tt.err, time.Minute); sick != tt.sick {
				t.Errorf("a minute of %v: replaced %v, want %v", tt.err, sick, tt.sick)
			}
		})
	}
}

// Errors of the old session while the new one is being opened do not count for
// the new one.
func TestNewSessionIsNotReplacedForTheOldOnesFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCluster()
		if !sickAfter(c, gocql.ErrNoConnections, time.Second) {
			t.Fatal("not sick")
		}
		<-c.sick // as runRebuild takes it, which then connects for some seconds
		if !sickAfter(c, gocql.ErrNoConnections, 3*time.Second) {
			t.Fatal("not sick any more, and nothing has healed")
		}
		c.swap(&link{})
		if len(c.sick) > 0 {
			t.Error("the new session is to be replaced at once")
		}
		if sickAfter(c, nil, time.Minute) {
			t.Error("a session that is answered is to be replaced")
		}
	})
}

// Closing a store leaves none of its goroutines.
func TestCloseWaitsForWhatIsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCluster()
		c.link.Session = new(gocql.Session)
		working := true
		c.owned.Go(func() {
			<-c.ctx.Done()
			time.Sleep(time.Second) // a dial that is being aborted
			working = false
		})
		c.close()
		if working || !c.link.Closed() {
			t.Errorf("closed; at work still: %v, its session is closed: %v", working, c.link.Closed())
		}
	})
}

// A caller is told the error of the latest request, on the session that is in
// use.
func TestTroubleIsOfTheLatestRequest(t *testing.T) {
	c := testCluster()
	for _, err := range []error{nil, gocql.ErrNoConnections, gocql.ErrTimeoutNoResponse, nil} {
		c.observe(c.link, classify(err), err)
		c.observe(&link{}, refused, gocql.ErrSessionClosed)
		if got := c.trouble(); got != err {
			t.Errorf("says %v after %v", got, err)
		}
	}
}
