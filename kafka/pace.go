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
	// stays-th of the linger at the most.
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

// pace follows a poll of which the client held the records through a rest, or not: after
// what was held it leaves all brokers a few-th of the linger to answer, and after another
// trickle the source rests. It returns when a rest began; zero = there was none.
func (s *Source) pace(ctx context.Context, came amount, held bool, room int, again time.Time) (rested time.Time) {
	switch now := time.Now(); {
	case !s.isTrickle(came, room):
		return time.Time{}
	case held:
		wait(ctx, nil, now.Add(min(s.options.Linger/few, glance)))
		return time.Time{}
	default:
		s.rest(ctx, room, again)
		return now
	}
}

// heldSince is since when the linger of records counts that the client held through a rest.
func (s *Source) heldSince(rested, now time.Time) time.Time {
	return sooner(now, rested.Add(s.options.Linger/stays))
}

// rest pauses after a trickle, until ctx ends at the latest. It ends as soon as the client
// has fetched more than a trickle: then what came was the rest of a fetch, or came beside
// a backlog of another partition. What has come is handed out unless the rest is to be
// shorter than the linger.
func (s *Source) rest(ctx context.Context, room int, again time.Time) {
	now := time.Now()
	until := s.restUntil(again, now)
	if until.Sub(now) == s.options.Linger {
		s.settle()
	}
	for ; now.Before(until) && ctx.Err() == nil; now = time.Now() {
		if !s.isLittle(s.fetched(), room) {
			return
		}
		wait(ctx, nil, sooner(until, now.Add(glance)))
	}
}

// settle has what has come of the main topics wait for nothing more.
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

// restUntil is when a source polls again after a trickle: sooner where a partition must be
// checked, as it was known before the poll, and after as long as one poll may wait at most.
func (s *Source) restUntil(again, now time.Time) time.Time {
	return sooner(again, now.Add(min(s.options.Linger, waking)))
}
