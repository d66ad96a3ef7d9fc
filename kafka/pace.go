package kafka

import (
	"context"
	"time"
)

// A poll that brings less than a few-th of a batch and of a fetch, or one record, is a trickle. What has
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
	return a.records < min(room, max(2, s.options.BatchRecords/few)) && a.bytes < s.options.fetchBytes()/few
}

// fetched is what the client holds for the next poll.
func (s *Source) fetched() amount {
	return amount{int(s.client.BufferedFetchRecords()), int(s.client.BufferedFetchBytes())}
}

// pace is what the polling goroutine knows of its last poll.
type pace struct {
	rested time.Time // when the rest after it began, if that was a whole linger; zero = it was not
	many   time.Time // when one had last brought more than a trickle, or the client had fetched that during a rest; zero = a linger ago or more
	asked  time.Time // when the client asked brokers for what has gathered, as what it held was taken; zero = it held nothing
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
// was held it leaves all brokers a few-th of the linger to answer, and where there are several
// as long again after the first answer; after another trickle the source rests.
func (s *Source) pace(ctx context.Context, last pace, held bool, came amount, room int, again time.Time) pace {
	now := time.Now()
	switch {
	case came.records == 0:
		return pace{}
	case !s.isTrickle(came, room):
		return pace{many: now}
	case held:
		wait(ctx, nil, now.Add(min(s.options.Linger/few, glance)))
		return pace{asked: now}
	case !last.asked.IsZero() && s.gathers(ctx, now.Sub(last.asked)):
		return pace{}
	default:
		return s.rest(ctx, last.many, room, again)
	}
}

// gathers waits for the answers of other brokers as long as the first one has taken, and reports
// whether there are any: without them a rest would hold these up. What takes long was no answer
// to the question: the broker had nothing until then.
func (s *Source) gathers(ctx context.Context, took time.Duration) bool {
	if took >= s.options.Linger/stays || !s.hasSeveralLeaders() {
		return false
	}
	wait(ctx, nil, time.Now().Add(took))
	return s.fetched().records > 0
}

// hasSeveralLeaders reports whether the partitions are read from more than one broker.
func (s *Source) hasSeveralLeaders() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := int32(-1)
	for p := range s.parts {
		switch leader, _, err := s.client.PartitionLeader(p.Topic, p.ID); {
		case err != nil || leader == first:
		case first < 0:
			first = leader
		default:
			return true
		}
	}
	return false
}

// rest pauses after a trickle, until ctx ends at the latest. It ends as soon as the client
// has fetched more than a trickle: then what came was the rest of a fetch, or came beside
// a backlog of another partition. Behind a whole rest's beginning, what has come is handed out.
// Many says when many came.
func (s *Source) rest(ctx context.Context, many time.Time, room int, again time.Time) pace {
	began := time.Now()
	until, whole := s.restUntil(began.Sub(many) < s.options.Linger, again, began)
	if whole {
		s.settle()
	}
	for now := began; now.Before(until) && ctx.Err() == nil; now = time.Now() {
		if !s.isLittle(s.fetched(), room) {
			return pace{many: now}
		}
		wait(ctx, nil, sooner(until, now.Add(glance)))
	}
	if !whole || ctx.Err() != nil {
		return pace{many: many}
	}
	return pace{rested: began}
}

// restUntil is until when a rest lasts, and whether that is a whole linger: where records come
// one by one. Where many came just before, more will come within it, and in a delayed topic
// others become due: there it is a stays-th, as where a partition must be checked sooner, or
// the linger is longer than a poll may wait.
func (s *Source) restUntil(many bool, again, now time.Time) (until time.Time, whole bool) {
	linger := s.options.Linger
	until = now.Add(linger)
	if !many && s.options.Topics[0].Kind == Main && linger <= waking && sooner(again, until).Equal(until) {
		return until, true
	}
	return sooner(again, now.Add(min(linger/stays, waking))), false
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
