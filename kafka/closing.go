package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// closeFor is how long a client that fetches may take to close: to leave its group, and to tell
// brokers that its fetch sessions are over.
const closeFor = 2 * time.Second

// closing bounds the end of a client that fetches. The client waits for brokers then, also for
// one that hangs, and for a new connection to it without any time-out of that end's own.
type closing struct {
	life context.Context // of the client
	end  context.CancelFunc
}

func newClosing() closing {
	life, end := context.WithCancel(context.Background())
	return closing{life, end}
}

// option is the client's.
func (c closing) option() kgo.Opt { return kgo.WithContext(c.life) }

// run closes the client by shut. What it has under way after within is given up.
func (c closing) run(shut func(), within time.Duration) {
	defer time.AfterFunc(within, c.end).Stop()
	shut()
	c.end()
}

// untilJoined returns a context that ends leaveFor after ctx or, if a JoinGroup or
// SyncGroup is pending then, after its answer. The client does not leave before its
// callbacks and its join are over, and not at all if its time is over by then: the group
// would take this member for alive until its session ends, give it partitions, and wait
// for it in each rebalance. done ends the context.
func (s *Source) untilJoined(ctx context.Context) (leaving context.Context, done func()) {
	leaving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-leaving.Done():
		}
		for end := time.Now().Add(leaveFor); leaving.Err() == nil && time.Now().Before(end); {
			if s.member.between() {
				end = time.Now().Add(leaveFor)
			}
			wait(leaving, nil, time.Now().Add(recheck))
		}
	})
	return leaving, func() {
		cancel()
		waiting.Wait()
	}
}

// leaveFor is the time for LeaveGroup once nothing has to be waited for any more.
const leaveFor = 500 * time.Millisecond

// isClosed reports whether Close has been called: the client sends no heartbeats then,
// while it waits for its last revoke.
func (s *Source) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close stops polling, commits once more, leaves the group and closes the client.
// Work in flight may finish until ctx ends; the next owner reads again what is not
// done by then. Close returns at most a second after that; while the group is being
// rebalanced, after that is over. It may be called twice.
func (s *Source) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.signal()
	s.mu.Unlock()
	s.Leaving()

	defer s.stopDrains()
	defer context.AfterFunc(ctx, s.stopDrains)()
	// A request that waits for a connection does not end with its context, but with the client.
	late, inTime := s.untilJoined(ctx)
	stop := context.AfterFunc(late, s.closing.end)
	s.stopFetch()
	s.fetching.Wait()
	err := s.Commit(ctx)
	stop()
	inTime()
	s.client.AllowRebalance()
	leaving, done := s.untilJoined(ctx)
	defer done()
	if leave := s.client.LeaveGroupContext(leaving); err == nil && leave != nil {
		err = fmt.Errorf("leaving group %s: %w", s.options.Group, leave)
	}
	s.stopBeats()
	s.closing.run(s.client.Close, leaveFor)
	// Closing leaves the group a second time and ends with a poll of its own. If
	// that poll is before one of the two leaves has begun, the leave waits for it.
	s.client.AllowRebalance()
	s.asking.Wait()
	if err != nil {
		return fmt.Errorf("closing source of group %s: %w", s.options.Group, err)
	}
	return nil
}
