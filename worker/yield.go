package worker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/rates"
)

const (
	// yieldRound is how often it is judged which lanes go first.
	yieldRound = time.Second
	// yieldBehind is how many rounds' work must wait in a lane that is refused sends for it
	// to be behind. Of more than one round a lane that pauses itself runs out of nothing.
	yieldBehind = 2
)

// turns says which lanes poll nothing while the limit of the whole fleet is short: the
// lowest one first, one more each round for as long as a lane above is behind, and never the
// first one. Each worker judges by what waits in its own lines.
type turns struct {
	lanes  int
	limit  *rates.Limit
	log    *slog.Logger
	paused atomic.Int32 // how many of the lowest lanes poll nothing
}

// yields returns what asks whether lane i is to poll nothing now; nil = it always polls.
func (t *turns) yields(i int) func() bool {
	if t == nil || i == 0 {
		return nil
	}
	return func() bool { return i >= t.lanes-int(t.paused.Load()) }
}

// load is what waits in a lane, and what its lines have begun to send, since the start.
type load struct {
	waits   int64
	begun   uint64
	refused uint64 // by the fleet's limit
}

// judge measures lanes each round until ctx ends.
func (t *turns) judge(ctx context.Context, loads func() []load) {
	ticker := time.NewTicker(yieldRound)
	defer ticker.Stop()
	last := loads()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := loads()
		was := int(t.paused.Load())
		paused := pausing(was, behind(last, now))
		last = now
		t.paused.Store(int32(paused))
		if (paused > 0) != (was > 0) {
			t.log.Info("lanes that poll nothing while the fleet's limit is short", "lowest", paused)
		}
	}
}

// behind reports of each lane whether the limit is why more waits in it than it will
// have sent soon.
func behind(last, now []load) []bool {
	late := make([]bool, len(now))
	for i := range now {
		begun := now[i].begun - last[i].begun
		late[i] = now[i].refused > last[i].refused && now[i].waits > yieldBehind*int64(begun)
	}
	return late
}

// pausing is how many of the lowest lanes poll nothing from now on: up to the most urgent
// one that is behind, but one more at a time.
func pausing(paused int, behind []bool) int {
	for i, late := range behind {
		if late {
			return min(paused+1, len(behind)-max(i, 1))
		}
	}
	return 0
}

// loads is what the lanes of this worker are at, both halves of each together.
func (g *group) loads() []load {
	loads := make([]load, len(g.Config.Lanes))
	for i, half := range g.lanes {
		l := &loads[i/2] // as openLanes has opened them
		for _, t := range half.pipeline.Trackers() {
			l.waits += t.Waiting()
		}
		l.begun += half.pipeline.Dispatched()
	}
	for i := range loads {
		loads[i].refused = g.shared.turns.limit.Lane(i).Refused()
	}
	return loads
}
