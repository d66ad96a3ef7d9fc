package limits

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// event is one allowed or booked notification, or one allowed delivery of it.
type event struct {
	id                 uint64 // hash of the notification id
	at                 int64  // Unix ms; of a booking when it may be sent
	keep               uint32 // Unix s: until then a rule of some worker needs it
	kind               uint32 // hash of the type
	extra              uint32 // of a delivery the device, of a booking since when, Unix s
	app, lane, channel uint16 // hashes
	flags              uint8
}

const (
	priorityBits = 0b111
	bookedFlag   = 1 << 3 // waits until at
	deviceFlag   = 1 << 4 // a delivery, counted by rules of devices alone
	plainFlag    = 1 << 5 // from a state of version 1: app, lane, channel and priority are not known
)

func (e *event) priority() uint8 { return e.flags & priorityBits }
func (e *event) booked() bool    { return e.flags&bookedFlag != 0 }
func (e *event) device() bool    { return e.flags&deviceFlag != 0 }
func (e *event) plain() bool     { return e.flags&plainFlag != 0 }

// same reports whether both are one notification on one channel.
func (e *event) same(o *event) bool {
	return e.id == o.id && (e.channel == o.channel || e.plain())
}

// sorted brings events into the order of their times, which states of version 1
// do not have.
func sorted(events []event) {
	later := func(a, b event) int { return cmp.Compare(a.at, b.at) }
	if !slices.IsSortedFunc(events, later) {
		slices.SortStableFunc(events, later)
	}
}

// insert adds e behind all that are not later.
func insert(events []event, e *event) []event {
	i := len(events)
	for i > 0 && events[i-1].at > e.at {
		i--
	}
	events = append(events, event{})
	copy(events[i+1:], events[i:])
	events[i] = *e
	return events
}

func typeHash(name string) uint32 { return uint32(xxhash.Sum64String(name)) }

// DeviceHash returns the Hash of a Device by its name, which is its push.DeviceHash.
func DeviceHash(name string) uint32 { return uint32(xxhash.Sum64String(name)) }

func idHash(id string) uint64 { return xxhash.Sum64String(id) }

func shortHash(name string) uint16 { return uint16(xxhash.Sum64String(name)) }

// seconds rounds up, so that what is kept is kept long enough.
func seconds(ms int64) uint32 { return uint32((ms + 999) / 1000) }
