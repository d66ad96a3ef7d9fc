package pipeline

import (
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// What this worker will not send is the next owner's, so that its offset stays;
// only what is committed, and so nobody else's, is answered for.
func TestUnsent(t *testing.T) {
	ours, next := &Delivery{Item: &Item{committed: true}}, &Delivery{Item: &Item{}}
	unsent([]*Delivery{ours, next})
	if !next.abandoned || next.Result.Class != push.Unsent {
		t.Errorf("uncommitted delivery: abandoned %v, class %v; want true, unsent", next.abandoned, next.Result.Class)
	}
	if ours.abandoned || ours.Result.Class != push.Held || ours.Result.Reason != string(push.WorkerStopped) || ours.Result.Scope != push.ScopeRoute {
		t.Errorf("committed delivery: abandoned %v, %+v; want it held", ours.abandoned, ours.Result)
	}
}
