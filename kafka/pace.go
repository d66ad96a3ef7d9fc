package kafka

import (
	"context"
	"time"
)

// A poll that brings less than a few-th of a batch and of a fetch is a trickle. What has
// come by then waits for no more: it is handed out, and the source rests for as long as the
// linger, in which records gather at the brokers. So a record that comes alone goes at once,
// and of those that follow each other closely there is a batch in each linger, for two
// requests. The client sends the first when it is polled before the rest, and holds the
// answer, some records or none, until it is polled again; the second brings what has gathered.
const (
	few = 20
	// What the client held through a rest still waits for what has gathered, for a
	// stays-th of the linger at the most. So long is a rest, too, where more is on its way.
	stays = 4
)

// amount is how much a poll brought, or what the client has fetched for the next one.
type amount struct{ records, bytes int }

// isTrickle reports whether the records of a poll for which there was room came one by one.
func (s *Source) isTrickle(came amount, room int) bool {
	return came.records > 0 && s.isLittle(came, room)
}

// isLittle reports whether an amount is a trickle where there was room for so many records.
func (s *Source) isLittle(a amount, room int) bool {
	return a.records < min(room, s.options.BatchRecords/few) && a.bytes < s.options.fetchBytes()/few
}

// fetched is what the client holds for the next poll.
func (s *Source) fetched() amount {
	return amount{int(s.client.BufferedFetchRecords()), int(s.client.BufferedFetchBytes())}
}

// pace is what the polling goroutine knows of its last poll.
type pace struct {
	rested time.Time // when the rest after it began, if that was a whole linger; zero = it was not
	many   bool      // it brought more than a trickle, or the client had fetched that during the rest
}

// heldSince is since when the linger of the records counts that the client held through a
// rest; zero = it held none.
func (s *Source) heldSince(last pace) time.Time {
	if last.rested.IsZero() || s.fetched().records == 0 {
		return time.Time{}
	}
	return sooner(time.Now(), last.rested.Add(s.options.Linger/stays))
}

// pace follows a poll, of which the client held the records through a rest, or not. After what
// was held it leaves all brokers a few-th of the linger to answer; after another trickle the
// source rests.
func (s *Source) pace(ctx context.Context, last pace, held bool, came amount, room int, again time.Time) pace {
	switch {
	case came.records == 0:
		return pace{}
	case !s.isTrickle(came, room):
		return pace{many: true}
	case held:
		wait(ctx, nil, time.Now().Add(min(s.options.Linger/few, glance)))
		return pace{}
	default:
		return s.rest(ctx, last.many, room, again)
	}
}

// rest pauses after a trickle, until ctx ends at the latest. It ends as soon as the client
// has fetched more than a trickle: then what came was the rest of a fetch, or came beside
// a backlog of another partition. Where records come one by one, what has come is handed out
// and the pause is the linger. Where many came just before, more will come within it, and in a
// delayed topic others become due: there the pause is a stays-th of the linger.
func (s *Source) rest(ctx context.Context, many bool, room int, again time.Time) pace {
	began := time.Now()
	pause := s.options.Linger
	if many || s.options.Topics[0].Kind != Main {
		pause /= stays
	}
	until := s.restUntil(pause, again, began)
	whole := until.Sub(began) == s.options.Linger
	if whole {
		s.settle()
	}
	for now := began; now.Before(until) && ctx.Err() == nil; now = time.Now() {
		if !s.isLittle(s.fetched(), room) {
			return pace{many: true}
		}
		wait(ctx, nil, sooner(until, now.Add(glance)))
	}
	if !whole || ctx.Err() != nil {
		return pace{}
	}
	return pace{rested: began}
}

// settle has what has come of the main topics wait for nothing more, but not of a partition
// of which much waits: it is a backlog's, and more of it is on its way.
func (s *Source) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.parts {
		a.settle()
	}
	s.signal()
}

// glance is how often a rest looks at what the client has fetched.
const glance = 5 * time.Millisecond

// restUntil is when a source polls again after a trickle: sooner than after the pause where a
// partition must be checked, as it was known before the poll, and after as long as one poll may
// wait at most.
func (s *Source) restUntil(pause time.Duration, again, now time.Time) time.Time {
	return sooner(again, now.Add(min(pause, waking)))
}
