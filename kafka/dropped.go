package kafka

import (
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// A batch that is too large to unpack is an error that the client tells once, and then it
// fetches no more of that partition until its offset is set (cursor.fatal of kgo v1.22.2). But
// it forgets what it holds of a partition that is paused when it is polled, and what it holds
// of all of them when its consumer session ends: when offsets are set, partitions leave, or a
// leader moves. If that error is among it nobody is told, and the partition stands still.
//
// So a Source remembers from the unpacking which partitions wait for the error, and has those
// fetched again whose error may be gone. All other errors the client fetches again itself, or
// tells apart from what it has fetched, so that none of them is lost. Setting the offset of a
// partition that waits for something else would skip what the client has still to find out:
// whether its log was cut short.

// overdue is how long the error of such a batch may take to come. The client holds one fetch
// of each broker, and polls take them in order, so that it comes with one of the next. Where
// the source is crowded that takes longer, and the batch is fetched again for nothing.
const overdue = 15 * time.Second

// told notes that the error of a partition's batch that is too large has come.
func (u *unpacking) told(p push.Partition) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.tooLarge, p)
}

// forget removes what told is waited for since a time: another batch may have been found since.
func (u *unpacking) forget(p push.Partition, found time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tooLarge[p].Equal(found) {
		delete(u.tooLarge, p)
	}
}

// untold returns of which partitions the client waits to tell that a batch is too large, and
// since when.
func (u *unpacking) untold() map[push.Partition]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.tooLarge) == 0 {
		return nil // as nearly always: this is asked after each poll
	}
	return maps.Clone(u.tooLarge)
}

// fetchDropped adds to behind where batches are to be fetched again whose errors the client
// has dropped. The caller holds mu.
func (s *Source) fetchDropped(behind *offsets, now time.Time) {
	untold := s.unpacking.untold()
	setting := len(*behind) > 0
	for p, found := range untold {
		if s.parts[p].isPast(found) {
			s.unpacking.forget(p, found)
		}
		setting = setting || s.parts[p].dropped(found, now, false)
	}
	for p, found := range untold {
		a := s.parts[p]
		if !a.dropped(found, now, setting) {
			continue
		}
		s.unpacking.told(p)
		at := a.position()
		a.anewAt = now
		behind.set(p, kgo.EpochOffset{Epoch: -1, Offset: at})
		s.log.Warn("the client dropped the error of a batch too large to unpack: fetching it again", "topic", p.Topic, "partition", p.ID, "offset", at)
	}
}

// isPast reports whether something was found before the assignment began, or it is over: when
// one ends or begins the client is set to an offset, or forgets.
func (a *assignment) isPast(found time.Time) bool {
	return a == nil || a.ended || found.Before(a.since)
}

// dropped reports whether the client has dropped, or will now, the error of a batch that was
// found to be too large. That of a held partition goes with this poll or the next one, and all
// go where offsets are being set. If it is only late nothing comes twice: with the offset set,
// the client forgets what it has of the partition, or is just fetching.
func (a *assignment) dropped(found, now time.Time, setting bool) bool {
	switch {
	case a.isPast(found), a.stopped != nil, a.onward != nil:
		return false // it reads no more, or is sent on anyway
	case setting:
		return true
	case now.Sub(a.anewAt) < overdue:
		return false // it may be paused and go on many times a second
	}
	return a.held || now.Sub(found) >= overdue
}
