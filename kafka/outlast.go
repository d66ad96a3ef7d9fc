package kafka

import "time"

// logEnd is where a log ends, as its leader of an epoch says; -1 = a broker that tells
// no epoch.
type logEnd struct {
	offset int64
	epoch  int32
}

// outlast notes that former owners are past sending. The coordinator answers none of them
// any more, so that a session after this assignment began none has a lease, also one that
// was expelled without its knowledge. What any of them has sent lies below the end that
// the log had from then on, as an answer to a question of asked says. It is the highest
// end ever told, as one broker may be behind another. Before, as many records are
// confirmed as one may have open.
//
// A broker that the cluster has cut off still answers as the leader of epoch, and knows
// nothing of what came to its successor: see doubt.
func (a *assignment) outlast(asked time.Time, epoch int32) {
	if epoch < 0 || epoch < a.epoch {
		return
	}
	later := epoch > a.epoch // whoever told an end before may have been cut off
	a.epoch = epoch
	if (later || !a.outlasted) && asked.Sub(a.since) > a.options.Session {
		a.outlasted = true
		a.tracker.Unseen(a.high)
	}
}

// doubt takes back what outlast has noted if a record is of a later leader than the one
// whose answer that was, or came from it: that one may have been cut off. A later answer
// notes it again.
func (a *assignment) doubt(epoch int32) {
	if epoch <= a.epoch {
		return
	}
	a.epoch = epoch
	if a.outlasted {
		a.outlasted = false
		a.tracker.Unseen(-1)
	}
}
