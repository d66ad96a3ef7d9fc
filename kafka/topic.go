package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// topic is a topic of a Source.
type topic struct {
	SourceTopic
	turn     int           // its place in the order in which topics take turns
	patience time.Duration // how much longer than Delay a record waits in place
	metrics  *topicMetrics
	admitted bool // HeaderAdmitted counts

	// All are guarded by the Source's lock.
	served     int32   // the partition that was served last
	id         topicID // that of its latest records; zero = the broker does not say
	partitions int     // the most that have been seen; 0 = not known
}

// carries reports whether one of our own headers stays with a record and its copies.
func (t *topic) carries(h *kgo.RecordHeader) bool {
	switch h.Key {
	case headerOrigin:
		return t.delayed() // only Producer reads it
	case HeaderAdmitted:
		return t.admitted && string(h.Value) == yes
	}
	return false
}

// delayed reports whether records have a time before which they are not handed out.
func (t *topic) delayed() bool { return t.Kind != Main }

// due returns when a record may be handed out. later is its own not-before, if that is
// so much later that the record would hold up those after it: then it is handed out
// when due, only to be produced again.
func (t *topic) due(h *polledRecord) (due, later time.Time) {
	switch {
	case t.Kind == Main, h.large == largeBatch:
		return time.Time{}, time.Time{}
	case t.Kind == Hold:
		return h.headers.notBefore, time.Time{}
	}
	due = h.timestamp.Add(t.Delay)
	notBefore := h.headers.notBefore
	switch wait := notBefore.Sub(due); {
	case wait <= 0:
		return due, time.Time{}
	case wait < t.patience:
		return notBefore, time.Time{}
	}
	return due, notBefore
}

// limits bound the open records of a partition and their bytes: window is the most that
// may be open, batch how much must be free before it is polled, and so the most of a poll.
type limits struct{ window, batch, windowBytes, batchBytes int }

// limits returns the limits of a partition. Those of a main topic are the whole window:
// all partitions together are bounded when polling. A partition of a delayed topic gets
// an even share of what the Source may have open, so that long waits in one take no
// room from the others: a poll cannot leave out records that are not due yet. Of bytes
// it gets half of that, because a poll may bring more of them than estimated.
func (t *topic) limits(o *SourceOptions, partitions int) limits {
	l := limits{window: o.window(), batch: o.BatchRecords, windowBytes: o.OpenBatches * o.BatchBytes, batchBytes: o.BatchBytes}
	if t.delayed() {
		parts := len(o.Topics) * max(1, partitions)
		l.window = min(l.window, max(1, o.OpenRecords/parts))
		l.batch = min(l.batch, max(1, l.window/4))
		l.windowBytes = min(l.windowBytes, max(1, o.OpenBytes/2/parts))
		l.batchBytes = min(l.batchBytes, max(1, l.windowBytes/4))
	}
	// Beside a few-th of a window more is polled, also where the window is one batch.
	l.batch = min(l.batch, l.window-l.window/few)
	l.batchBytes = min(l.batchBytes, l.windowBytes-l.windowBytes/few)
	return l
}

// partition returns the name of one of its partitions.
func (t *topic) partition(id int32) push.Partition {
	return push.Partition{Topic: t.Name, ID: id}
}
