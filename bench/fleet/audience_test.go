//go:build unix

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// kept are tables that count what is written to them.
type kept struct {
	mu      sync.Mutex
	users   map[string]int // guarded by mu; rows of each
	batches int            // guarded by mu
	err     error          // of every statement
	busy    int            // guarded by mu; how many statements are not answered first
}

func (k *kept) Exec(_ context.Context, statement string, values ...any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	if k.busy > 0 {
		k.busy--
		return errors.New("timed out")
	}
	k.batches++
	const columns = 8
	if strings.Count(statement, "INSERT") != len(values)/columns {
		return fmt.Errorf("%s with %d values", statement, len(values))
	}
	for row := range slices.Chunk(values, columns) {
		if row[2] != values[2] {
			return fmt.Errorf("buckets %v and %v in one batch", row[2], values[2])
		}
		k.users[row[4].(string)]++
	}
	return nil
}

func (*kept) Query(context.Context, string, []any, []any, func()) error { return nil }

// Every subscriber is written once, in batches of one partition each, and a failure ends it.
func TestSubscribersAreWritten(t *testing.T) {
	name := func(i int) string { return fmt.Sprintf("user-%08d", i) }
	k := &kept{users: map[string]int{}, busy: writeTries - 1}
	topic := &subscriptions.Topic{Name: "everybody", Layout: subscriptions.Layout{Number: 1, Buckets: 4}}
	if err := WriteSubscribers(t.Context(), k, topic, 1000, name); err != nil {
		t.Fatal(err)
	}
	if len(k.users) != 1000 || k.users["user-00000999"] != 1 || k.batches < 16 || k.batches > 20 {
		t.Errorf("%d users in %d batches", len(k.users), k.batches)
	}
	k.err = errors.New("away")
	if err := WriteSubscribers(t.Context(), k, topic, 100_000, name); !errors.Is(err, k.err) {
		t.Errorf("it is away: %v", err)
	}
}
