package kafka

import (
	"context"

	"github.com/pushfleet/pushfleet/pipeline"
)

// What became of records is told by ranges of their offsets, each before the commit that
// passes it (SourceOptions.Tell). At most one range of a partition is told and not
// committed: until its commit is acknowledged, every commit ends where it does. So an
// owner after a kill begins either where that range does, and tells it again, or where it
// ends, and nobody has to know which.

// telling is what goes with a commit.
type telling struct {
	ranges []pipeline.Range // to tell before it
	more   bool             // there is more to commit after it
}

// cut says what is to be committed of an assignment: up to where, and the range to tell
// before; none where it is told already. more reports that there is more to commit after
// that. Offsets are those of moved. The caller holds the Source's lock.
func (a *assignment) cut(next int64) (to int64, r *pipeline.Range, more bool) {
	if a.options.Tell == nil {
		return next, nil, false
	}
	settled, ok := a.tracker.Settled()
	if !ok {
		return next, nil, false
	}
	if a.told < 0 {
		a.told = a.start()
		a.toldCommitted = a.told
	}
	// In lanes that commit intents before they send, the offset goes ahead of the range,
	// whose end is in the commit's metadata: there the next owner begins to read.
	ahead := a.options.Reread > 0
	if a.told == a.toldCommitted && settled > a.told {
		r = &pipeline.Range{Partition: a.partition, TopicID: a.topic.id, From: a.told, To: settled, Came: a.tracker.Take(settled)}
		a.told = settled
	}
	if ahead {
		return next, r, settled > a.told
	}
	return min(next, a.told), r, next > a.told
}

// start is where the assignment began to read, whoever owned it before.
func (a *assignment) start() int64 {
	if a.reread > 0 {
		return a.begun
	}
	return max(a.committed, 0)
}

// tell tells ranges before they are committed. The caller holds committing, so that those
// of a partition come one after the other, and not mu.
func (s *Source) tell(ctx context.Context, ranges []pipeline.Range) {
	if len(ranges) > 0 {
		s.options.Tell(ctx, ranges)
	}
}
