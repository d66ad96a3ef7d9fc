//go:build unix

package chaos

import (
	"testing"
	"time"
)

// In full, 20 workers are told to end, each of them several times; offsets are
// set back in each way; and each store is late by both times, alone and with the
// others.
func TestSequencesInFull(t *testing.T) {
	plan := func(name string, seed uint64) []Action {
		s, err := FindScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		return Plan(s, seed, s.Full)
	}
	for seed := range uint64(20) {
		who := map[string]int{}
		for _, a := range plan("stops", seed) {
			if a.Fault == Stop {
				who[a.Target]++
			}
		}
		if n := who[worker(0)] + who[worker(1)] + who[worker(2)]; n != 20 || len(who) != stopWorkers {
			t.Errorf("seed %d: %d stops, %v", seed, n, who)
		}
		forms := map[int]int{}
		for _, a := range plan("rewind", seed) {
			if a.Fault == Rewind {
				forms[a.Form]++
			}
		}
		if len(forms) != 3 {
			t.Errorf("seed %d: offsets are set back in the ways %v", seed, forms)
		}
	}
	taken := map[int]int{}
	for _, a := range plan("rights", 1) {
		if a.Fault == Forbid {
			taken[a.Form]++
		}
	}
	if len(taken) != rights || taken[readLane] != taken[joinGroup] {
		t.Errorf("rights are taken away %v times", taken)
	}
	type late struct {
		target string
		by     time.Duration
	}
	count, together := map[late]int{}, map[time.Duration]int{}
	for _, a := range plan("slow-stores", 1) {
		count[late{a.Target, a.Delay}]++
		together[a.At]++
	}
	for _, target := range []string{Kafka, Redis, Cassandra} {
		for _, by := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond} {
			if n := count[late{target, by}]; n != 2 {
				t.Errorf("%s is late by %v %d times, want alone and with the others", target, by, n)
			}
		}
	}
	all := 0
	for _, n := range together {
		if n == 3 {
			all++
		}
	}
	if all != 2 || len(together) != 8 {
		t.Errorf("of %d times, all are late together %d times, want 2 of 8", len(together), all)
	}
}
