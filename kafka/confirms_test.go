package kafka

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A window is counted from the committed offset, where the next owner begins. So a dead
// owner had none but the next owner's first W records, however long it could not commit.
func TestTheFirstWindowCoversAllThatADeadOwnerHad(t *testing.T) {
	const window, total = 40, 300
	c := newCluster(t, 1, []string{"push"})
	var outage atomic.Bool
	outage.Store(true)
	c.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("commits are cut off"), outage.Load()
	})
	so := SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, OpenBatches: window / 10, Linger: time.Millisecond, Drain: mortal}
	hasty := so
	hasty.Commit = 200 * time.Millisecond
	dead := c.source(hasty)
	c.produce("push", 0, 0, total)
	most := int64(-1)
	for most < window-1 {
		b := nextItems(t, dead, 1)[0]
		done(b) // at once: only commits hold it up
		most = b.Items[len(b.Items)-1].Offset
	}
	if err := dead.Commit(t.Context()); err == nil {
		t.Fatal("setup: the outage had no effect")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if b, err := dead.Next(ctx); err == nil {
		t.Fatalf("got offset %d with nothing committed, the window is %d", b.Items[0].Offset, window)
	}
	_ = dead.Close(t.Context()) // its last commit fails too
	if got := c.committed("g", "push", 0); got != -1 {
		t.Fatalf("got commit %d, want none", got)
	}

	outage.Store(false)
	so.Commit = 20 * time.Second // reached only by a hang
	heir := c.source(so)
	for seen := int64(0); seen < total; {
		b := nextItems(t, heir, 1)[0]
		for _, it := range itemsOf(b) {
			if it.Offset <= most && !it.Confirm {
				t.Errorf("offset %d, which the dead owner may have sent, is not marked for a confirm read", it.Offset)
			}
			if it.Offset >= window && it.Confirm {
				t.Errorf("offset %d is marked for a confirm read, although no owner can have sent it", it.Offset)
			}
			seen = it.Offset + 1
		}
		done(b)
		if err := heir.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
