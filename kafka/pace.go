package kafka

import (
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// A poll that brings less than a few-th of a batch and of a fetch is followed by a pause of
// a paces-th of the linger, unless as much is known to wait: what came mostly waits for others
// anyway, and each poll costs a request, of which a broker would answer more than a thousand a
// second with some records each.
const (
	few   = 20
	paces = 4
)

// amount is how much a poll brought, or left in the logs.
type amount struct{ records, bytes int }

// pace decides after which polls a source rests.
type pace struct {
	trickled bool // the last poll was a trickle
	left     int  // how many records that one has left in the logs
}

// rests reports whether a source rests after a poll for which there was room: its records
// came one by one. They did not if a backlog is behind them: then they are the rest of a
// fetch, or of one partition. A backlog that is no less after two such polls cannot be
// read: its leader does not answer, say, or nothing is left of the records at its end.
func (p *pace) rests(s *Source, came amount, room int, paused map[push.Partition]bool) bool {
	before := *p
	*p = pace{trickled: came.records > 0 && s.isLittle(came, room)}
	if !p.trickled {
		return false
	}
	left := s.backlog(paused)
	p.left = left.records
	return s.isLittle(left, room) || before.trickled && p.left >= before.left
}

// isLittle reports whether an amount is a trickle where there was room for so many records.
func (s *Source) isLittle(a amount, room int) bool {
	return a.records < min(room, s.options.BatchRecords/few) && a.bytes < maxFetch/few
}

// backlog is what is known to wait in the logs of the partitions that are not paused, with
// bytes as records have had of late.
func (s *Source) backlog(paused map[push.Partition]bool) amount {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for p, a := range s.parts {
		if !paused[p] {
			n += int(max(0, a.high-max(a.position(), a.empty)))
		}
	}
	return amount{n, n * s.typical}
}

// restUntil is when a source polls again after a trickle: sooner where a partition must be
// checked, as it was known before the poll, and after as long as one poll may wait at most.
func (s *Source) restUntil(again, now time.Time) time.Time {
	return sooner(again, now.Add(min(s.options.Linger/paces, waking)))
}
