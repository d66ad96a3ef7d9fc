//go:build unix

package chaos

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Cassandra goes away when the fleet has committed something since it was away last, and from
// one that commits nothing in the end, too.
func TestCassandraGoesAwayFromAFleetAtWork(t *testing.T) {
	for _, row := range []struct {
		why       string
		past      int64
		committed func(since time.Duration) int64
		cancel    time.Duration // 0 = never
		want      time.Duration
		said      int
	}{
		{"at work since the run began", 0, func(time.Duration) int64 { return 1 }, 0, 0, 0},
		{"the workers are still starting", 0, func(d time.Duration) int64 { return int64(d / (3 * time.Second)) }, 0, 3 * time.Second, 0},
		{"nothing since its last outage", 700, func(d time.Duration) int64 { return 700 + int64(d/time.Second)/5 }, 0, 5 * time.Second, 0},
		{"nothing at all", 700, func(time.Duration) int64 { return 700 }, 0, workPatience + samplePause, 1},
		{"the run is interrupted", 700, func(time.Duration) int64 { return 700 }, 2 * time.Second, 2 * time.Second, 1},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.cancel > 0 {
					time.AfterFunc(row.cancel, cancel)
				}
				began, said := time.Now(), 0
				n := &nemesis{past: row.past, committed: func() int64 { return row.committed(time.Since(began)) }, say: func(string, ...any) { said++ }}
				n.awaitWork(ctx)
				if took := time.Since(began); took != row.want || said != row.said {
					t.Errorf("waited for %v and said %d things, want %v and %d", took, said, row.want, row.said)
				}
			})
		})
	}
}
