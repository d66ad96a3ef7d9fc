package status

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// A lent session reads rows, says what went wrong once, and notices a store that
// does not answer, but no caller who gives up.
func TestSessionIsLent(t *testing.T) {
	n := startNode(t)
	s, err := OpenSession(t.Context(), n.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const ping = "SELECT key FROM system.local"
	var key string
	var keys []string
	ask := func(ctx context.Context) error {
		return s.Query(ctx, ping, nil, []any{&key}, func() { keys = append(keys, key) })
	}
	if err := ask(t.Context()); err != nil || len(keys) != 1 || keys[0] != "local" {
		t.Errorf("rows %q, %v", keys, err)
	}
	if err := s.Exec(t.Context(), ping); err != nil {
		t.Error(err)
	}
	if err := s.Exec(t.Context(), "no such statement"); err == nil {
		t.Error("an unknown statement went through")
	}
	if s.cluster.trouble() == nil {
		t.Error("a statement that is refused went by unseen")
	}
	if err := ask(t.Context()); err != nil || s.cluster.trouble() != nil {
		t.Errorf("it is not well again: %v, %v", err, s.cluster.trouble())
	}
	asked := n.count("ping")
	n.mu.Lock()
	n.answer = func(what string, times int) error {
		if what == "ping" && times == asked+1 {
			return frame{gocql.ErrCodeOverloaded, "too many requests"}
		}
		return nil
	}
	n.mu.Unlock()
	if err := ask(t.Context()); err == nil || n.count("ping") != asked+1 {
		t.Errorf("%v after %d attempts, want an error after one", err, n.count("ping")-asked)
	}
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ctx); !errors.Is(err, context.Canceled) || s.cluster.trouble() != nil {
		t.Errorf("a caller who gave up: %v, trouble %v", err, s.cluster.trouble())
	}
}

// Who borrows a session does not open another one: it is replaced under its hands.
func TestALentSessionIsReplaced(t *testing.T) {
	n := startNode(t)
	s, err := OpenSession(t.Context(), n.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	old := s.cluster.use()
	s.cluster.mu.Lock()
	s.cluster.failing = time.Now() // no request has been answered since
	s.cluster.mu.Unlock()
	s.cluster.rebuild()
	await(t, "a new session", func() bool {
		now := s.cluster.use()
		defer now.done()
		return now != old
	})
	old.done()
	await(t, "the old session closed", old.Closed)
}

func TestSessionIsNotOpened(t *testing.T) {
	for why, o := range map[string]Options{"no hosts": {}, "nobody is there": {Hosts: []string{"127.0.0.1:1"}}} {
		if _, err := OpenSession(t.Context(), o); err == nil {
			t.Errorf("%s: opened", why)
		}
	}
}

// Rows that end too early are an attempt that failed, and no end of the worker.
func TestRowsThatEndTooEarly(t *testing.T) {
	n := startNode(t)
	n.raw = []byte{0, 0, 0, 3} // rows, of which none comes
	s, err := OpenSession(t.Context(), n.options())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var id string
	dest := make([]any, len(rowColumns))
	dest[0] = &id
	rows := 0
	if err := s.Query(t.Context(), selectRows, []any{int64(1), []string{"a"}}, dest, func() { rows++ }); err == nil || rows > 0 {
		t.Errorf("got %d rows (error %v), want an error", rows, err)
	}
}
