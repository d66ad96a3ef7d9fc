//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// What a worker declares is read from its metrics, and nothing else of them.
func TestDeclaredIn(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	list := declaredIn(fleet.Metrics{
		`push_partition_stall_seconds{lane="main",partition="3",reason="route_paused",topic="push.main"}`: 2.5,
		`push_stall_seconds{lane="main",reason="status"}`:                                                 9,
	}, "worker 1", now)
	want := invariants.Declared{At: now, Worker: "worker 1", Partition: invariants.Partition{Topic: "push.main", ID: 3}, Reason: "route_paused",
		Since: now.Add(-2500 * time.Millisecond)}
	if len(list) != 1 || list[0] != want {
		t.Errorf("%+v, want %+v", list, want)
	}
}

// While a group finds out who has what, nothing is said; of an empty one it is
// that nobody has anything. Only changes are written down.
func TestOwners(t *testing.T) {
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	if _, settled := assigned(&kadm.DescribedGroup{State: "PreparingRebalance"}, "t"); settled {
		t.Error("a rebalance is no answer")
	}
	nobody, settled := assigned(&kadm.DescribedGroup{State: "Empty"}, "t")
	if !settled || nobody != [partitions]string{} {
		t.Errorf("an empty group has %v, %v", nobody, settled)
	}
	o := &owners{topic: "t", world: &world{slots: []*slot{{name: "worker 1"}, {name: "worker 2"}}}}
	one := nobody
	one[0], one[1] = "worker-1", "worker-2"
	o.note(began, nobody)
	o.note(began.Add(1), one)
	o.note(began.Add(2), one)
	changes := o.owners[partitions:]
	if len(o.owners) != partitions+2 || o.owners[3].Worker != "" || changes[0].Worker != "worker 1" || changes[1].Worker != "worker 2" || changes[1].Partition.ID != 1 {
		t.Errorf("owners %+v", o.owners)
	}
}
