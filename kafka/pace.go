package kafka

import (
	"context"
	"time"
)

// A poll that brings less than a few-th of a batch and of a fetch is followed by a pause of
// a paces-th of the linger: what came mostly waits for others anyway, and each poll costs a
// request, of which a broker would answer more than a thousand a second with some records
// each.
const (
	few   = 20
	paces = 4
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

// rest pauses after a trickle, until ctx ends at the latest. It ends as soon as the client
// has fetched more than a trickle: then what came was the rest of a fetch, or came beside
// a backlog of another partition.
func (s *Source) rest(ctx context.Context, room int, again time.Time) {
	now := time.Now()
	for until := s.restUntil(again, now); now.Before(until) && ctx.Err() == nil; now = time.Now() {
		if !s.isLittle(s.fetched(), room) {
			return
		}
		wait(ctx, nil, sooner(until, now.Add(glance)))
	}
}

// glance is how often a long rest looks at what the client has fetched: by default a rest is
// no longer.
const glance = 5 * time.Millisecond

// restUntil is when a source polls again after a trickle: sooner where a partition must be
// checked, as it was known before the poll, and after as long as one poll may wait at most.
func (s *Source) restUntil(again, now time.Time) time.Time {
	return sooner(again, now.Add(min(s.options.Linger/paces, waking)))
}
