package stages

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Logs knows the logs of a lane's topic. It is safe for concurrent use.
type Logs interface {
	// End returns where the log of a partition ends, as last heard, and how many
	// partitions its topic has; ok is false while either is not known.
	End(p push.Partition) (offset int64, partitions int, ok bool)
}

// Pace knows how a lane goes on in this worker. It is safe for concurrent use.
type Pace interface {
	// Pace returns how many records of each of the worker's partitions wait to be sent,
	// in no order, and how many the lane has begun to send a second while it had
	// something to send; 0 = not known.
	Pace() (waiting []int64, perSecond float64)
}

// Thresholds are how many records of a lane may wait to be sent before those of a
// priority are shed, by priority; 0 = never.
type Thresholds [push.Critical + 1]int64

// Of returns the threshold of a priority. Critical is never shed; a priority without a
// threshold of its own goes with bulk.
func (t *Thresholds) Of(p push.Priority) int64 {
	switch {
	case p == push.Critical:
		return 0
	case int(p) < len(t) && t[p] > 0:
		return t[p]
	}
	return t[push.Bulk]
}

// closing reports whether a class is shed at a depth: above its threshold, and from then
// on until the depth is under 80 % of it.
func closing(shedding bool, depth, threshold int64) bool {
	switch {
	case threshold <= 0:
		return false
	case shedding:
		return 5*depth >= 4*threshold
	}
	return depth > threshold
}

// Shed ends what the lane has no room for, by class and by deadline, before anything is
// asked about its user. What must be dropped is dropped oldest first, as it comes.
//
// The depth of a lane is judged by each record in its own partition: what is not
// dispatched there, times the partitions of the topic. So what is under way does not
// count, and neither does a partition that stands still elsewhere. A deadline is what the
// message itself says, never the lane's greatest age.
//
// It comes behind the confirm read, so a record that has an outcome is not shed, and
// sheds none of which a device has a row. Retries, deferrals and what was held have been
// taken on: they are not shed.
type Shed struct {
	thresholds Thresholds
	logs       Logs
	pace       Pace

	mu sync.Mutex // held while a batch is judged: what one sheds, the next does not find
	// shedding are the classes that are shed, by partition; guarded by mu. They stay
	// when a partition leaves: there are no more than partitions of the topic.
	shedding map[push.Partition]*[push.Critical + 1]bool
}

// NewShed makes the stage of one lane's own topic.
func NewShed(t Thresholds, l Logs, p Pace) *Shed {
	return &Shed{thresholds: t, logs: l, pace: p, shedding: make(map[push.Partition]*[push.Critical + 1]bool)}
}

// Name implements pipeline.Stage.
func (*Shed) Name() pipeline.Step { return StepShed }

// Apply never fails: what is not known sheds nothing.
func (s *Shed) Apply(_ context.Context, b *pipeline.Batch) error {
	if b.Retry {
		return nil
	}
	end, partitions, ok := s.logs.End(b.Partition)
	if !ok {
		return nil
	}
	waiting, perSecond := s.pace.Pace()
	s.mu.Lock()
	defer s.mu.Unlock()
	j := judgement{thresholds: &s.thresholds, tracker: b.Tracker, now: time.Now(), backlog: b.Tracker.Backlog(end), partitions: int64(partitions),
		waiting: waiting, perSecond: perSecond, shedding: s.shedding[b.Partition]}
	if j.shedding == nil {
		j.shedding = new([push.Critical + 1]bool)
		s.shedding[b.Partition] = j.shedding
	}
	j.apply(b)
	return nil
}

// judgement is what is known while one batch is judged.
type judgement struct {
	thresholds *Thresholds
	tracker    *pipeline.Tracker
	now        time.Time
	backlog    int64 // of the partition; less what is shed meanwhile
	partitions int64
	waiting    []int64
	perSecond  float64
	shedding   *[push.Critical + 1]bool
}

// apply judges deadlines first, of the classes that are not shed for the depth anyway:
// what is ahead of them is what will be sent. Then it judges the depth that is left.
func (j *judgement) apply(b *pipeline.Batch) {
	depth := j.depth()
	for p := range j.shedding { // also those of which the batch has no record: they open unseen
		j.shedding[p] = closing(j.shedding[p], depth, j.thresholds.Of(push.Priority(p)))
	}
	closed := *j.shedding
	doomed := int64(0) // records of closed classes so far: they are not ahead of anything
	for i := range b.Items {
		it := &b.Items[i]
		switch {
		case !mayShed(it):
		case closed[class(it)]:
			doomed++
		default:
			j.deadline(it, doomed)
		}
	}
	for i := range b.Items {
		if it := &b.Items[i]; mayShed(it) && !j.tooDeep(it) && closed[class(it)] {
			j.deadline(it, 0)
		}
	}
}

// mayShed reports whether an item is one that load may drop: it is of a class below
// critical, and has begun nothing.
func mayShed(it *pipeline.Item) bool {
	return it.Verdict == push.Undecided && it.Priority != push.Critical && it.Step() == 0 && it.History == nil
}

// class is the place of an item's priority in tables of them.
func class(it *pipeline.Item) push.Priority { return min(it.Priority, push.Critical) }

// depth is how many records of the lane wait, by the partition of the batch.
func (j *judgement) depth() int64 { return j.backlog * j.partitions }

// shed ends an item. The next one finds it gone.
func (j *judgement) shed(it *pipeline.Item, why push.Reason, detail string) {
	it.Decide(push.Shed, why, detail)
	j.backlog--
}

// tooDeep sheds an item whose class is shed at this depth.
func (j *judgement) tooDeep(it *pipeline.Item) bool {
	depth, threshold := j.depth(), j.thresholds.Of(it.Priority)
	now := closing(j.shedding[class(it)], depth, threshold)
	j.shedding[class(it)] = now
	if now {
		j.shed(it, push.ShedDepth, detail(it.Priority, depth, "threshold", threshold))
	}
	return now
}

// deadline sheds an item that expires before its turn comes. Of those ahead of it, less
// are not going to be sent.
func (j *judgement) deadline(it *pipeline.Item, less int64) {
	if j.perSecond <= 0 || it.ExpiresAt.IsZero() {
		return
	}
	left, ahead := it.ExpiresAt.Sub(j.now), max(0, j.tracker.Ahead(it)-less)
	wait := turn(j.waiting, ahead, j.perSecond)
	if left < wait {
		if sooner, ok := j.tracker.Sooner(it, j.now); ok {
			wait = min(wait, earlier(wait, turn(j.waiting, min(sooner-1, ahead), j.perSecond)))
		}
	}
	if left < wait {
		j.shed(it, push.ShedDeadline, detail(it.Priority, j.depth(), "wait_s", int64(wait/time.Second)))
	}
}

// turn is how long a record waits that has so many ahead of it in its partition.
// Partitions take turns: until it is sent, each other one has sent as many, or all that
// it has.
func turn(waiting []int64, ahead int64, perSecond float64) time.Duration {
	before := int64(0)
	for _, n := range waiting {
		before += min(n, ahead)
	}
	seconds := float64(max(before, ahead)) / perSecond
	return time.Duration(min(seconds, longestTurn.Seconds()) * float64(time.Second))
}

// earlier is how long a record waits that goes ahead of what expires later, as long as
// that is not overtaken for more than pipeline.Overtaken: inOrder is its wait as it came,
// and soonest that for what expires sooner. Of what is ahead of it in the log a part of
// soonest / inOrder does; so each second of its wait that is longer puts as much of the
// others behind them.
func earlier(inOrder, soonest time.Duration) time.Duration {
	if soonest <= pipeline.Overtaken {
		return soonest
	}
	others := float64(inOrder-soonest) / float64(soonest)
	return max(soonest, inOrder-time.Duration(others*float64(pipeline.Overtaken)))
}

// longestTurn is as long as a turn is said to be: nothing waits for longer in a lane.
const longestTurn = 30 * 24 * time.Hour

// detail is what a row says about why an item was shed, behind the reason.
func detail(class push.Priority, depth int64, name string, value int64) string {
	b := make([]byte, 0, 64)
	b = append(append(b, "class="...), class.String()...)
	b = strconv.AppendInt(append(b, " depth="...), depth, 10)
	b = append(append(append(b, ' '), name...), '=')
	return string(strconv.AppendInt(b, value, 10))
}
