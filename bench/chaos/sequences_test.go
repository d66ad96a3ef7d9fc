//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
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

// A notification to 20,000 devices comes before each thing that is done, which
// is done to both workers, of which one has it; and nothing cuts its devices.
func TestWideInFull(t *testing.T) {
	s, err := FindScenario("wide")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		who := map[Fault]map[string]int{}
		for _, a := range Plan(s, seed, s.Short) {
			if who[a.Fault] == nil {
				who[a.Fault] = map[string]int{}
			}
			who[a.Fault][a.Target]++
			if in := a.At % wideEvery; in < wideEvery/2 {
				t.Errorf("seed %d: %s comes before what it is to hit, or when it is over", seed, a)
			}
		}
		if len(who[Kill]) != 2 || len(who[Stop]) != 2 || len(who[Errors]) != 2 {
			t.Errorf("seed %d: in short both workers and both providers are to be hit: %v", seed, who)
		}
	}
	for _, length := range []time.Duration{s.Short, s.Full} {
		records := int(length.Seconds()) * s.Rate
		o := crowd.Default(fleet.App, records)
		o.Wide, o.WideEvery = s.wide, s.everyWide()
		people, err := crowd.New(o)
		if err != nil {
			t.Fatal(err)
		}
		g, got := people.Records(), 0
		for range records {
			if r := g.Next(time.Now()); r.Fate == crowd.Reaches && len(people.Targets(r.User).Live) == 20_000 {
				got++
			}
		}
		if want := int(length / wideEvery); got != want {
			t.Errorf("in %v %d notifications go to 20,000 devices, want %d", length, got, want)
		}
	}
	c := configs.Default()
	(&world{scenario: s, mode: configs.AtLeastOnce, people: &crowd.Crowd{}}).configure(c)
	if c.Registry.DevicesPerUser < s.wide || c.Registry.DevicesPerApp < s.wide {
		t.Errorf("the registry keeps %d devices of a user and %d of an app", c.Registry.DevicesPerUser, c.Registry.DevicesPerApp)
	}
}
