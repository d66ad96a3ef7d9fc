package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Answers about progress are used for a second. The id of a topic changes only when the
// topic is made anew; a send does not wait for it more often than every 10 seconds.
const (
	progressAge = time.Second
	topicAge    = 10 * time.Second
)

// progress asks for the progress of lanes, once for all who want to know it within a
// second. It is safe for concurrent use.
type progress struct {
	offsets Offsets
	timeout time.Duration

	mu    sync.RWMutex
	lanes map[string]*laneProgress // guarded by mu; each is made once
}

// laneProgress is the latest answer about one lane.
type laneProgress struct {
	// Capacity 1: who asks has put one in, and takes it out. A send, which asks for the
	// topic, does not wait for who asks for offsets.
	turn, topicTurn chan struct{}

	// Guarded by turn.
	asked  time.Time // when the latest question was put; zero = never
	answer Progress
	err    error

	known atomic.Pointer[knownTopic] // topic and good; nil = there is none

	// Guarded by topicTurn.
	topic  [16]byte  // of the latest good answer
	good   time.Time // when that was asked for; zero = there is none
	failed time.Time // when the latest question about the topic failed
}

// knownTopic is the id of a topic, and when it was asked for.
type knownTopic struct {
	id   [16]byte
	good time.Time
}

func newProgress(o Offsets, timeout time.Duration) *progress {
	return &progress{offsets: o, timeout: timeout, lanes: make(map[string]*laneProgress)}
}

func (p *progress) lane(name string) *laneProgress {
	p.mu.RLock()
	l := p.lanes[name]
	p.mu.RUnlock()
	if l != nil {
		return l
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.lanes[name]
	if l == nil {
		l = &laneProgress{turn: make(chan struct{}, 1), topicTurn: make(chan struct{}, 1)}
		p.lanes[name] = l
	}
	return l
}

// of is a lane's progress, as it was at most a second before the call. An error is
// remembered for as long, so that callers do not queue up behind brokers that are away.
func (p *progress) of(ctx context.Context, lane string) (Progress, error) {
	l := p.lane(lane)
	if err := enter(ctx, l.turn); err != nil {
		return Progress{}, err
	}
	defer leave(l.turn)
	if l.asked.IsZero() || time.Since(l.asked) >= progressAge {
		p.ask(ctx, lane, l)
	}
	return l.answer, l.err
}

// knownTopic is the id of a lane's topic, if nothing has to be asked and waited for.
func (p *progress) knownTopic(lane string) (topic [16]byte, known bool) {
	if t := p.lane(lane).known.Load(); t != nil && time.Since(t.good) < topicAge {
		return t.id, true
	}
	return [16]byte{}, false
}

// topicOf is the id of a lane's topic; zero = it is not known by now.
func (p *progress) topicOf(ctx context.Context, lane string) [16]byte {
	l := p.lane(lane)
	if enter(ctx, l.topicTurn) != nil {
		return [16]byte{}
	}
	defer leave(l.topicTurn)
	if !l.good.IsZero() && time.Since(l.good) < topicAge || !l.failed.IsZero() && time.Since(l.failed) < progressAge {
		return l.topic
	}
	ctx, cancel := p.lasting(ctx)
	defer cancel()
	at := time.Now()
	topic, err := p.offsets.Topic(ctx, lane)
	if err != nil {
		l.failed = time.Now()
		return l.topic
	}
	l.topic, l.good = topic, at
	l.known.Store(&knownTopic{topic, at})
	return l.topic
}

// lasting is the context of a question: its answer is for all, so that it goes on when
// its caller has gone away, but no longer than the caller would wait.
func (p *progress) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := p.timeout
	if until, bounded := ctx.Deadline(); bounded {
		timeout = min(timeout, time.Until(until))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

func enter(ctx context.Context, turn chan<- struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func leave(turn <-chan struct{}) { <-turn }

// ask asks in its caller's turn.
func (p *progress) ask(ctx context.Context, lane string, l *laneProgress) {
	ctx, cancel := p.lasting(ctx)
	defer cancel()
	l.asked = time.Now()
	if l.answer, l.err = p.offsets.Progress(ctx, lane); l.err != nil {
		l.asked = time.Now() // a question that took long has failed now
	}
}
