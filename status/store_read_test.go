package status

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/pushfleet/pushfleet/push"
)

// minted are ids of one second, which have at most 16 buckets.
func minted(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("0199f3c2-8a00-7b11-8c22-%012x", i)
	}
	return ids
}

// Ids of a bucket are read by the hundred, each once, and each has its own
// rows, however often and in whatever order it was asked for.
func TestReadAsksByTheHundred(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	c.opts.Layouts = Layouts{{Slice: time.Hour, Shards: 1}}
	c.merger.bucket = c.opts.Layouts.Bucket
	ids := append(minted(250), "campaign-1", "campaign-2")
	if err := c.Write(t.Context(), rowsOf(ids[10:]...)); err != nil {
		t.Fatal(err)
	}
	asked := append(slices.Clone(ids), ids[20], ids[20], ids[0], "campaign-2")
	found, err := c.Read(t.Context(), asked)
	if err != nil || len(found) != len(asked) {
		t.Fatalf("%d answers to %d questions, %v", len(found), len(asked), err)
	}
	for i, rows := range found {
		if missing := slices.Index(ids, asked[i]) < 10; missing && rows != nil || !missing && (len(rows) != 1 || rows[0].ID != asked[i]) {
			t.Errorf("answer %d, of %s: %+v", i, asked[i], rows)
		}
	}
	found[20][0].Reason = "the caller's"
	if found[252][0].Reason != "" || found[253][0].Reason != "" {
		t.Error("two answers of one id share memory")
	}
	slices.Sort(n.reads)
	if !slices.Equal(n.reads, []int{1, 1, 50, 100, 100}) {
		t.Errorf("asked for %v ids", n.reads)
	}
	if got := testutil.ToFloat64(c.metrics.readIDs); got != float64(len(ids)) {
		t.Errorf("%v ids are counted, want %d", got, len(ids))
	}
	if got := testutil.ToFloat64(c.metrics.reads[noFailure]); got != 5 {
		t.Errorf("%v queries are counted, want 5", got)
	}
}

// A read of many partitions has as many goroutines as the store has places, not
// one for each.
func TestReadIsBounded(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	c.opts.Concurrency = 1
	n.says("read", errSilent)
	ids := make([]string, 5000)
	for i := range ids {
		ids[i] = fmt.Sprint("campaign-", i)
	}
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Read(ctx, ids)
		done <- err
	}()
	await(t, "the first queries", func() bool { return n.count("read") >= fullWeight })
	if more := runtime.NumGoroutine() - before; more > 100 {
		t.Errorf("%d goroutines read", more)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a read that nobody waits for: %v", err)
	}
}

// A confirm query that fails is repeated, and only an answer counts.
func TestReadIsTriedAgain(t *testing.T) {
	for _, failure := range []error{
		frame{gocql.ErrCodeOverloaded, "too much"}, frame{gocql.ErrCodeUnavailable, "away"}, frame{gocql.ErrCodeReadTimeout, "slow"}, errHangUp,
	} {
		n := startNode(t)
		c := n.open(t)
		if err := c.Write(t.Context(), rowsOf("a1")); err != nil {
			t.Fatal(err)
		}
		n.mu.Lock()
		n.answer = func(what string, times int) error {
			if what == "read" && times <= 2 {
				return failure
			}
			return nil
		}
		n.mu.Unlock()
		found, err := c.Read(t.Context(), []string{"a1"})
		if err != nil || len(found[0]) != 1 || n.count("read") != 3 {
			t.Errorf("%v: %v, %v after %d questions", failure, found, err, n.count("read"))
		}
		if got := testutil.ToFloat64(c.metrics.readIDs); got != 1 {
			t.Errorf("%v: %v ids are counted", failure, got)
		}
	}
}

// A query that fails for its whole time ends with the last error. So does one
// between two attempts when its context ends.
func TestReadGivesUp(t *testing.T) {
	refusal := frame{gocql.ErrCodeUnauthorized, "no SELECT"}
	stopped := errors.New("the worker stops")
	for _, tt := range []struct {
		why  string
		rest time.Duration // before the next attempt, of two hours
		end  func(c *Cassandra, cancel context.CancelCauseFunc)
		want error
	}{
		{"it is too late for another attempt", 5 * time.Hour, nil, gocql.RequestError(refusal)},
		{"nobody waits any more", time.Hour, func(_ *Cassandra, cancel context.CancelCauseFunc) { cancel(stopped) }, stopped},
		{"the store is closed", time.Hour, func(c *Cassandra, _ context.CancelCauseFunc) { c.Close() }, ErrClosed},
	} {
		n := startNode(t)
		c := n.open(t)
		c.opts.Timeout, c.merger.opts.backoff = 2*time.Hour, push.Backoff{First: tt.rest, Longest: tt.rest}
		n.says("read", refusal)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := c.Read(ctx, []string{"a1"})
			done <- err
		}()
		if tt.end != nil {
			await(t, "the first attempt", func() bool { return testutil.ToFloat64(c.metrics.reads[refused]) == 1 })
			tt.end(c, cancel)
		}
		err := <-done
		cancel(nil)
		if says := "reading 1 notifications from cassandra " + n.addr(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", tt.why, err, says)
		}
		if tt.want != ErrClosed && !strings.Contains(err.Error(), refusal.text) || tt.end != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v and what it met", tt.why, err, tt.want)
		}
	}
}

// A server that does not answer fails an attempt at its timeout, and the error
// says how long that was.
func TestNodeThatSaysNothing(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	c.opts.Timeout = 50 * time.Millisecond
	for what, do := range map[string]func() error{
		"read": func() error { _, err := c.Read(t.Context(), []string{"a1"}); return err },
		"ping": func() error { return c.Ping(t.Context()) },
	} {
		n.says(what, errSilent)
		if err := do(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), n.addr()) {
			t.Errorf("%s: %v", what, err)
		}
		if c.cluster.trouble() == nil {
			t.Errorf("%s: nobody else hears of it", what)
		}
		n.says(what, nil)
		c.opts.Timeout = time.Minute
		if err := do(); err != nil || c.cluster.trouble() != nil {
			t.Errorf("%s, of a server that answers again: %v, %v", what, err, c.cluster.trouble())
		}
		c.opts.Timeout = 50 * time.Millisecond
	}
}
