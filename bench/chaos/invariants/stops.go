package invariants

import (
	"slices"
	"time"
)

// stops: a worker that is told to end in order leaves nothing behind that
// another sends again, however long its backlog and however slow the providers.
// Only a send whose answer a fault has kept from it, or whose row could not be
// written because of one, may come again: a kill or a pause of another worker
// excuses nothing, and neither does anything that merely stalls.
func (c *checker) stops() {
	for pair, sends := range c.pushes {
		var before *Send
		for i := range sends {
			now := &sends[i]
			if !now.Accepted || now.Undone {
				continue
			}
			if before != nil {
				if e := c.stopBetween(before, now); e != nil && !before.Unheard && !c.blurred(e.Target, before.At, now.At) {
					c.r.find(Stops, "%s on device %s was accepted from %s at %s, which was told to end at %s, and again at %s: %s", pair.ID, pair.Device,
						e.Target, before.At.Format(time.StampMilli), e.Start.Format(time.StampMilli), now.At.Format(time.StampMilli), c.story(pair.ID))
				}
			}
			before = now
		}
	}
}

// stopBetween is the orderly stop of the worker that sent the first of two
// pushes, if there was one before the second.
func (c *checker) stopBetween(before, now *Send) *Event {
	i := slices.IndexFunc(c.Events, func(e Event) bool {
		return e.Orderly && e.Target == before.Worker && !before.At.After(e.End.Add(c.limits.Grace)) && !now.At.Before(e.Start)
	})
	if i < 0 {
		return nil
	}
	return &c.Events[i]
}

// blurred reports whether a fault made the answers to a worker's sends
// uncertain in a time, or kept their rows from being written.
func (c *checker) blurred(worker string, from, to time.Time) bool {
	return slices.ContainsFunc(c.Events, func(e Event) bool {
		return !e.Orderly && (e.Repeats > 0 || e.Unrecordable) && (e.Of == "" || e.Of == worker) && c.touches(&e, from, to)
	})
}
