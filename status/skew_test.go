package status_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// TestSkewedWorkersRegressNothing: two workers, whose clocks are ten minutes
// fast and ten minutes slow, write the results of the same notifications, in
// every order and with either worker as the writer of each row. The outcome
// depends on the rows only, whoever wrote which and when, and DELIVERED stays
// DELIVERED from its row on.
func TestSkewedWorkersRegressNothing(t *testing.T) {
	opts := apply(t, shared(t))
	type clock struct {
		store *status.Cassandra
		skew  time.Duration
	}
	workers := [2]clock{{open(t, opts), -10 * time.Minute}, {open(t, opts), 10 * time.Minute}}
	type end struct {
		device string
		step   int16
		state  push.State
	}
	for _, tt := range []struct {
		why  string
		ends []end
		want push.Outcome
	}{
		{"retried, held, delivered", []end{{"a", 0, push.StateSending}, {"a", 0, push.StateRetrying}, {"a", 1, push.StateHeld},
			{"a", 2, push.StateDelivered}}, push.OutcomeDelivered},
		{"delivered by a worker that was overtaken", []end{{"a", 0, push.StateDelivered}, {"a", 0, push.StateRetrying},
			{"a", 1, push.StateFailed}, {"a", 2, push.StateDeadLettered}}, push.OutcomeDelivered},
		{"delivered by both", []end{{"a", 0, push.StateDelivered}, {"a", 0, push.StateDelivered}, {"a", 0, push.StateUnknown},
			{"a", 0, push.StateRetrying}}, push.OutcomeDelivered},
		{"one device delivered, one given up", []end{{"a", 0, push.StateDelivered}, {"b", 0, push.StateRetrying}, {"b", 1, push.StateFailed},
			{"", 0, push.StateHeld}}, push.OutcomeDelivered},
		{"retried, then failed", []end{{"a", 0, push.StateRetrying}, {"a", 1, push.StateHeld}, {"a", 2, push.StateRetrying},
			{"a", 3, push.StateFailed}}, push.OutcomeFailed},
		{"failed, redriven, and waiting", []end{{"a", 0, push.StateRetrying}, {"a", 1, push.StateDeadLettered}, {"a", 2, push.StateRetrying},
			{"a", 3, push.StateHeld}}, push.OutcomeOpen},
	} {
		t.Run(tt.why, func(t *testing.T) {
			// A notification for each order of the rows and each choice of
			// writers.
			type course struct {
				order   []int
				writers int // bit i: who writes ends[i]
			}
			var courses []course
			var ids []string
			for _, order := range orders(len(tt.ends)) {
				for writers := range 1 << len(tt.ends) {
					courses, ids = append(courses, course{order, writers}), append(ids, minted(time.Now()))
				}
			}
			wasDelivered := make([]bool, len(ids))
			for turn := range tt.ends {
				var rows [len(workers)][]push.Row
				for i, c := range courses {
					n := c.order[turn]
					w, e := c.writers>>n&1, tt.ends[n]
					rows[w] = append(rows[w], push.Row{ID: ids[i], Device: e.device, Step: e.step, State: e.state, At: time.Now().Add(workers[w].skew)})
				}
				for w := range workers {
					put(t, workers[w].store, rows[w])
				}
				for i, found := range get(t, workers[turn%2].store, ids) {
					got := (&push.History{Rows: found}).Outcome()
					name := fmt.Sprintf("rows in order %v by workers %04b, after row %d", courses[i].order, courses[i].writers, turn)
					if wasDelivered[i] && got != push.OutcomeDelivered {
						t.Fatalf("%s: was DELIVERED, is %v", name, got)
					}
					wasDelivered[i] = wasDelivered[i] || tt.ends[courses[i].order[turn]].state == push.StateDelivered
					if wasDelivered[i] && got != push.OutcomeDelivered {
						t.Fatalf("%s: DELIVERED is masked: %v", name, got)
					}
					if turn == len(tt.ends)-1 && got != tt.want {
						t.Fatalf("%s: %v, want %v", name, got, tt.want)
					}
				}
			}
		})
	}
}

// orders are all permutations of n things.
func orders(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, rest := range orders(n - 1) {
		for at := range n {
			order := append(append(append([]int(nil), rest[:at]...), n-1), rest[at:]...)
			all = append(all, order)
		}
	}
	return all
}
