package endtoend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
)

// A worker that gets no more memory is killed by the kernel in the middle of its
// work, twice: nothing is lost, and no more repeated than by any other kill.
// With what `config check` says it may need, set as docs/operations.md has it,
// it is not killed.
func TestMemoryKillLosesNothing(t *testing.T) {
	localtest.Require(t)
	group, err := local.NewMemoryGroup()
	if errors.Is(err, local.ErrNoMemoryGroup) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, group.Close()) })
	const records, kills = 15_000, 2
	people := newCrowd(t, records)
	w := newWorld(t, setup{programs: inGroup(t), faults: slow(), configure: func(c *configs.Config) {
		narrow(c)
		caps(c, people.Cap)
		c.Kafka.SessionTimeout = 6 * time.Second
	}})
	w.populate(people)
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))
	need := int64(w.Config.MemoryBound().Total())
	start := func() *fleet.Process {
		check(t, group.Limit(need*4/3))
		p, err := w.StartWorker("MEMORY_GROUP="+group.Entry(), fmt.Sprintf("GOMEMLIMIT=%d", need))
		check(t, err)
		return p
	}
	for n := range kills {
		worker := start()
		check(t, w.AwaitAccepted(waiting(t), 3000*uint64(n+1)))
		squeeze(t, group, worker)
		status, err := worker.Wait(waiting(t))
		check(t, err)
		if killed := 128 + int(syscall.SIGKILL); status != killed {
			t.Fatalf("the worker without memory ended with %d, want %d%s", status, killed, worker.Tail())
		}
		check(t, worker.Kill()) // it is: so that its end counts as meant
	}
	start()
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	if most := kills * routes * (inFlight + unacknowledged); r.Resent > most {
		t.Errorf("%d pushes were repeated, more than %d", r.Resent, most)
	}
	killed, err := group.Kills()
	check(t, err)
	if killed != kills {
		t.Errorf("the kernel killed %d workers, want %d: those that had too little memory", killed, kills)
	}
}

// squeeze leaves a worker no more memory than it has, until it needs more.
func squeeze(t *testing.T, group *local.MemoryGroup, worker *fleet.Process) {
	t.Helper()
	for ctx := waiting(t); worker.Running(); {
		used, err := group.Used()
		check(t, err)
		// EBUSY: it has taken more meanwhile.
		if err := group.Limit(used); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		select {
		case <-worker.Done():
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("a worker at work with %d bytes of memory: %v", used, context.Cause(ctx))
		}
	}
}

// inGroup is a worker that enters the memory group of its environment. It is
// built without the race detector, which takes several times the memory.
func inGroup(t *testing.T) *fleet.Programs {
	t.Helper()
	dir := t.TempDir()
	built, err := fleet.Build(waiting(t), dir, false, "pushworker")
	check(t, err)
	script := filepath.Join(dir, "in-group")
	text := fmt.Sprintf("#!/bin/sh\nset -e\n[ -z \"$MEMORY_GROUP\" ] || echo $$ >\"$MEMORY_GROUP\"\nexec '%s' \"$@\"\n", built.Worker)
	check(t, os.WriteFile(script, []byte(text), 0o700))
	return &fleet.Programs{Worker: script, Ctl: programs.Ctl}
}
