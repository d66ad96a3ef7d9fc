package fanout

import (
	"context"
	"sync"
	"time"
)

// lookEvery is how often a lane's lag, and the state of a message that waits for it, are
// asked for.
const lookEvery = time.Second

// pace says when chunks of a lane may begin, and how fast their records go. It is safe
// for concurrent use.
type pace struct {
	lane   string
	lag    Lag
	most   int64
	within time.Duration // of the workers' rate; 0 = whatever that is
	rate   int

	asking chan struct{} // capacity 1; who asks for the lag has its one

	mu    sync.Mutex
	asked time.Time // guarded by mu; when lag was asked for
	known int64     // guarded by mu; how far the workers were behind then, and what was produced since
	stuck int64     // guarded by mu; of partitions that stand still, which known leaves out
	drain drain     // guarded by mu
	next  time.Time // guarded by mu; when the rate lets the next record go
}

// least is how far behind the workers may always be: commits trail what is done, and at
// first nobody knows what they can do.
const least = 1000

func newPace(lane string, lag Lag, l *Limits) *pace {
	return &pace{lane: lane, lag: lag, most: l.Lag, within: l.LagTime, rate: l.Rate, asking: make(chan struct{}, 1)}
}

// behind reports whether the lane's workers are so far behind that nothing may begin. An
// answer that cannot be had is none. Who waits for another's question gives up when leaving is
// closed: errLeaving.
func (p *pace) behind(ctx context.Context, leaving <-chan struct{}) (bool, error) {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-leaving:
		return true, errLeaving
	case <-ctx.Done():
		return true, ctx.Err()
	}
	now := time.Now()
	p.mu.Lock()
	if !p.asked.IsZero() && now.Sub(p.asked) < lookEvery {
		defer p.mu.Unlock()
		return p.full(), nil
	}
	// What is produced while we ask may be counted twice, and never not at all.
	p.known = 0
	p.mu.Unlock()
	lag, err := p.lag.Lag(ctx, p.lane)
	if err != nil {
		return true, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	moving, stuck := p.drain.learn(time.Now(), lag)
	p.asked, p.known, p.stuck = now, p.known+moving, stuck
	return p.full(), nil
}

// full reports whether nothing may begin. The caller holds mu.
func (p *pace) full() bool {
	return p.known >= p.may() || p.known+p.stuck >= p.most
}

// may is how far behind the workers may be for a chunk to begin. The caller holds mu.
func (p *pace) may() int64 {
	if p.within == 0 {
		return p.most
	}
	return max(int64(p.drain.rate*p.within.Seconds()), least)
}

// produced counts what goes to the lane.
func (p *pace) produced(records int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known += int64(records)
}

// reserve takes a place for so many records, and returns how long they wait until the rate
// lets them go.
func (p *pace) reserve(records int) time.Duration {
	if p.rate == 0 {
		return 0
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	until := p.next
	p.next = p.next.Add(time.Duration(records) * time.Second / time.Duration(p.rate))
	return until.Sub(now)
}
