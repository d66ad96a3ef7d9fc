//go:build unix

package chaos

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/status"
)

// A plan is a function of its scenario, seed and length: that is what makes a
// failing seed worth writing down.
func TestPlansReplay(t *testing.T) {
	for _, s := range Scenarios() {
		for _, length := range []time.Duration{s.Short, s.Full} {
			a, b := Plan(s, 42, length), Plan(s, 42, length)
			if len(a) == 0 || !reflect.DeepEqual(a, b) {
				t.Errorf("%s: %d faults, and another plan for the same seed", s.Name, len(a))
			}
			if !slices.IsSortedFunc(a, func(x, y Action) int { return int(x.At - y.At) }) {
				t.Errorf("%s: faults are not in order of time", s.Name)
			}
			for _, f := range a {
				if f.At < 0 || f.For < 0 || f.Target == "" || f.Fault == "" {
					t.Errorf("%s: %+v cannot be done", s.Name, f)
				}
			}
		}
	}
	mixed, err := FindScenario("mixed")
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(Plan(mixed, 1, mixed.Full), Plan(mixed, 2, mixed.Full)) {
		t.Error("another seed, the same plan")
	}
}

// The rows of the table, in full: 300 kills, ten rounds of all workers,
// three minutes of churn and of each outage.
func TestFullLengths(t *testing.T) {
	count := func(name string) (list []Action) {
		s, err := FindScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		return Plan(s, 1, s.Full)
	}
	dead := 0
	for _, a := range count("kills") {
		if a.Fault == Kill {
			dead++
		}
	}
	if dead != 300 {
		t.Errorf("%d kills, want 300", dead)
	}
	rounds := map[string]int{}
	for _, a := range count("rolling") {
		rounds[a.Target]++
	}
	if len(rounds) != 4 || rounds[worker(0)] != 10 || rounds[worker(3)] != 10 {
		t.Errorf("restarts %v, want 10 of each of 4 workers", rounds)
	}
	churn := count("churn")
	for i := 1; i < len(churn); i++ {
		if gap := churn[i].At - churn[i-1].At; gap < 500*time.Millisecond || gap > 3*time.Second {
			t.Errorf("%v between two changes of members", gap)
		}
	}
	if last := churn[len(churn)-1].At; last < 3*time.Minute-4*time.Second {
		t.Errorf("churn ends after %v", last)
	}
	for _, a := range append(count("cassandra"), count("provider")...) {
		if a.Fault != Storm && a.For < 3*time.Minute {
			t.Errorf("%s: want 3 minutes", a)
		}
	}
}

// In full, more waits for each worker in an outage of Cassandra than twice what
// it may hold: so memory that is not flat shows.
func TestTheBacklogOfAnOutageTells(t *testing.T) {
	s, err := FindScenario("cassandra")
	if err != nil {
		t.Fatal(err)
	}
	c := configs.Default()
	c.Lanes = c.Lanes[:1]
	s.configure(c)
	m := c.MemoryBound()
	held := int64(m.Total() - m.Base - m.Fetch)
	for _, a := range Plan(s, 1, s.Full) {
		if backlog := int64(a.For.Seconds()) * int64(s.Rate) * int64(s.weight) / int64(s.Workers); backlog < 2*held {
			t.Errorf("%s: a backlog of %d MiB, and a worker may hold %d", a, backlog>>20, held>>20)
		}
	}
	value := heavier([]byte(`{"id":"a"}`), 100)
	if len(value) != 100+len(`{"id":"a","ballast":""}`) || !json.Valid(value) {
		t.Errorf("%s", value)
	}
	for _, other := range []string{"", "{", "ÿ}", "5"} {
		if got := heavier([]byte(other), 100); string(got) != other {
			t.Errorf("%q became %q", other, got)
		}
	}
}

// Every kind of fault is drawn by some seed, or the code for it never runs.
func TestMixedDrawsEverything(t *testing.T) {
	seen := map[Fault]bool{}
	mixed, err := FindScenario("mixed")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		for _, a := range Plan(mixed, seed, mixed.Full) {
			seen[a.Fault] = true
		}
	}
	for _, f := range []Fault{Kill, Pause, Stop, KillAll, Wipe, Slow, BlackHole, HalfOpen, Reset, Cut, Refuse, Storm, Errors, Down, GoAway, Abandon} {
		if !seen[f] {
			t.Errorf("%q is never drawn", f)
		}
	}
}

// However short, both disks are full once, and there is time to start again.
func TestDiskFillsBothByTurns(t *testing.T) {
	disk, err := FindScenario("disk")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		last, ends := "", time.Duration(0)
		times := map[string]int{}
		for _, a := range Plan(disk, seed, disk.Short) {
			if a.Fault != Full {
				continue
			}
			if times[a.Target]++; last != "" && (a.Target == last || a.At < ends+5*time.Second) {
				t.Errorf("seed %d: %s comes right after %s", seed, a, last)
			}
			last, ends = a.Target, a.At+a.For
		}
		if len(times) != 2 || times[Kafka] == 0 || times[Cassandra] == 0 || ends > disk.Short {
			t.Errorf("seed %d: disks full %v, the last until %v", seed, times, ends)
		}
	}
}

func TestFindScenario(t *testing.T) {
	if _, err := FindScenario("nothing"); err == nil || !strings.Contains(err.Error(), "kills") {
		t.Errorf("%v, want an error that names those there are", err)
	}
}

// The checker finds rows by itself, where the worker puts them.
func TestBucket(t *testing.T) {
	for _, id := range []string{"01a1fd03-14c0-7abc-8def-0123456789ab", "01A1FD03-14C0-7ABC-8DEF-0123456789AB", "1b4e28ba-2fa1-4d2e-883f-0016d3cca427",
		"order-17", "kafka:abcdefghijklmnopqrstuvwx", "", "01a1fd0314c07abc8def0123456789ab", "01a1fd03-14c0-7abc-cdef-0123456789ab"} {
		if got, want := bucket(id), status.DefaultLayouts().Bucket(id); got != want {
			t.Errorf("%q: bucket %d, the worker's is %d", id, got, want)
		}
	}
}
