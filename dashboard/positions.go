package dashboard

import (
	"slices"
	"strings"
	"time"
)

// What a topic is to its lane.
const (
	// TopicMain is the lane's own topic.
	TopicMain = "lane"
	// TopicRetry has what is tried again, or was put off, after a delay.
	TopicRetry = "retry"
	// TopicHold has what waits for a provider.
	TopicHold = "hold"
	// TopicDLQ has dead letters.
	TopicDLQ = "dlq"
)

// Position is how far a lane's group is with a partition.
type Position struct {
	Lane, Kind, Topic string
	Partition         int32
	Start, End        int64 // the first offset that is there, and the next one that is written
	Committed         int64 // -1 = nothing yet: the group begins at Start
	Unknown           bool  // no broker tells its offsets
}

// waiting is how many offsets are not committed.
func (p *Position) waiting() int64 { return max(0, p.End-max(p.Committed, p.Start)) }

// positions are the newest answer about all topics.
type positions struct {
	at      time.Time // of the newest answer; zero = none yet
	failed  string    // why the last question had no answer; empty = it had one
	topics  []topicAt
	maximum int // partitions of all lanes' own topics
	unknown int // partitions of which no broker tells the offsets
}

// topicAt is a topic by its positions.
type topicAt struct {
	lane, kind, name string
	partitions       int
	waiting          int64
}

// Positions takes the newest positions of all topics, the main topic of a lane before
// the others of it.
func (f *Feed) Positions(list []Position, at time.Time) {
	p := positions{at: at}
	for i := range list {
		of := &list[i]
		j := slices.IndexFunc(p.topics, func(t topicAt) bool { return t.name == of.Topic })
		if j < 0 {
			j = len(p.topics)
			p.topics = append(p.topics, topicAt{lane: of.Lane, kind: of.Kind, name: of.Topic})
		}
		p.topics[j].partitions++
		if of.Unknown {
			p.unknown++
		} else {
			p.topics[j].waiting += of.waiting()
		}
		if of.Kind == TopicMain {
			p.maximum++
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present(at)
	f.positions = p
}

// NoPositions says that the positions could not be read, and why. The earlier ones are
// shown on, with their age.
func (f *Feed) NoPositions(why string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present(at)
	f.positions.failed = cut(strings.ToValidUTF8(why, ""))
}
