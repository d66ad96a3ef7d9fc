package limits

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// A state of version 2, as stored, little-endian:
//
//	byte 0       version, 2
//	bytes 1-8    xxhash64 of all that follows
//	bytes 9-10   number of events; byte 11 number of running windows
//	per event    flags 1, id hash 8, type hash 4, at 6 (Unix ms), keep 4 (Unix s),
//	             app, lane and channel hash 2 each; of deliveries and bookings
//	             the device's hash or since when (Unix s) 4 more
//	per window   unit 1, start 4, end 4 (Unix s)
//	then counters, each: hash of the rule 8, keep 4 (Unix s), length 2, data
//
// Counters are for rules that need data of their own. No rule of today does: a
// newer worker's are kept as they are until their time.
//
// Version 1, which only has whole events of rules about types:
//
//	byte 0       version, 1
//	bytes 1-8    xxhash64 of all that follows
//	bytes 9-16   base, Unix ms
//	then 16 bytes per event: id hash 8, type hash 4, ms since the base 4
//
// In both the first nine bytes stand for the whole value in the
// compare-and-set: equal hash, equal content.
const (
	stampSize = 9

	headerSize1 = 17
	eventSize1  = 16

	headerSize  = 12
	eventSize   = 29
	extraSize   = 4
	windowSize  = 9
	counterSize = 14

	farthest = 1<<48 - 1 // Unix ms
)

var errDamaged = errors.New("damaged limiter state")

// StateError is one of a user's state, which is damaged or of an unknown version. It
// does not pass by itself.
type StateError struct {
	Key string // in Redis
	Err error
}

// Error implements error.
func (e *StateError) Error() string { return fmt.Sprintf("limits: key %s: %v", e.Key, e.Err) }

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// state is what is known of a user's use of limits. Its slices are reused.
type state struct {
	version  byte // as stored; 0 = none
	events   []event
	running  []span
	counters []byte
}

// decode reads a stored state. No state (nil or empty) has no events. A version
// it does not know is an error: a newer worker wrote it, and reading it as empty
// would grant every limit again. keep is for how many ms events of version 1,
// which do not say, are to be kept.
func (s *state) decode(stored []byte, keep int64) error {
	s.version, s.events, s.running, s.counters = 0, s.events[:0], s.running[:0], s.counters[:0]
	if len(stored) == 0 {
		return nil
	}
	if v := stored[0]; v != 1 && v != 2 {
		return fmt.Errorf("limiter state of unknown version %d, this worker knows 1 and 2", v)
	}
	if len(stored) < stampSize || binary.LittleEndian.Uint64(stored[1:]) != xxhash.Sum64(stored[stampSize:]) {
		return errDamaged
	}
	ok := false
	if stored[0] == 1 {
		ok = s.decode1(stored, keep)
	} else {
		ok = s.decode2(stored)
	}
	if !ok {
		s.events, s.running, s.counters = s.events[:0], s.running[:0], s.counters[:0]
		return errDamaged
	}
	s.version = stored[0]
	sorted(s.events)
	return nil
}

func (s *state) decode1(stored []byte, keep int64) bool {
	if len(stored) < headerSize1 || (len(stored)-headerSize1)%eventSize1 != 0 {
		return false
	}
	base := binary.LittleEndian.Uint64(stored[stampSize:])
	if base > farthest {
		return false
	}
	for b := stored[headerSize1:]; len(b) > 0; b = b[eventSize1:] {
		at := int64(base) + int64(binary.LittleEndian.Uint32(b[12:]))
		s.events = append(s.events, event{
			id:    binary.LittleEndian.Uint64(b),
			kind:  binary.LittleEndian.Uint32(b[8:]),
			at:    at,
			keep:  seconds(at + keep),
			flags: plainFlag,
		})
	}
	return true
}

func (s *state) decode2(stored []byte) bool {
	if len(stored) < headerSize {
		return false
	}
	events, windows := int(binary.LittleEndian.Uint16(stored[stampSize:])), int(stored[stampSize+2])
	b := stored[headerSize:]
	for range events {
		if len(b) < eventSize {
			return false
		}
		e := event{
			flags:   b[0],
			id:      binary.LittleEndian.Uint64(b[1:]),
			kind:    binary.LittleEndian.Uint32(b[9:]),
			at:      int64(binary.LittleEndian.Uint32(b[13:])) | int64(binary.LittleEndian.Uint16(b[17:]))<<32,
			keep:    binary.LittleEndian.Uint32(b[19:]),
			app:     binary.LittleEndian.Uint16(b[23:]),
			lane:    binary.LittleEndian.Uint16(b[25:]),
			channel: binary.LittleEndian.Uint16(b[27:]),
		}
		b = b[eventSize:]
		if e.flags&(bookedFlag|deviceFlag) != 0 {
			if len(b) < extraSize {
				return false
			}
			e.extra = binary.LittleEndian.Uint32(b)
			b = b[extraSize:]
		}
		s.events = append(s.events, e)
	}
	for range windows {
		if len(b) < windowSize {
			return false
		}
		s.running = append(s.running, span{unit(b[0]), int64(binary.LittleEndian.Uint32(b[1:])) * 1000, int64(binary.LittleEndian.Uint32(b[5:])) * 1000})
		b = b[windowSize:]
	}
	for c := b; len(c) > 0; {
		if len(c) < counterSize || len(c) < counterSize+int(binary.LittleEndian.Uint16(c[12:])) {
			return false
		}
		c = c[counterSize+int(binary.LittleEndian.Uint16(c[12:])):]
	}
	s.counters = append(s.counters, b...)
	return true
}

// encode appends the state to buf, in a version that was read or is asked for:
// what stands in version 2 never goes back.
func (s *state) encode(buf []byte, version byte) []byte {
	start := len(buf)
	buf = append(buf, max(s.version, version), 0, 0, 0, 0, 0, 0, 0, 0)
	if buf[start] == 1 {
		buf = s.append1(buf)
	} else {
		buf = s.append2(buf)
	}
	binary.LittleEndian.PutUint64(buf[start+1:], xxhash.Sum64(buf[start+stampSize:]))
	return buf
}

// append1 writes events that lie within 49 days of each other: their rules have
// windows of at most 31, and prune sees to the rest.
func (s *state) append1(buf []byte) []byte {
	base := int64(0)
	if len(s.events) > 0 {
		base = s.events[0].at
	}
	buf = binary.LittleEndian.AppendUint64(buf, uint64(base))
	for i := range s.events {
		e := &s.events[i]
		buf = binary.LittleEndian.AppendUint64(buf, e.id)
		buf = binary.LittleEndian.AppendUint32(buf, e.kind)
		buf = binary.LittleEndian.AppendUint32(buf, uint32(e.at-base))
	}
	return buf
}

func (s *state) append2(buf []byte) []byte {
	buf = binary.LittleEndian.AppendUint16(buf, uint16(len(s.events)))
	buf = append(buf, byte(len(s.running)))
	for i := range s.events {
		e := &s.events[i]
		buf = append(buf, e.flags)
		buf = binary.LittleEndian.AppendUint64(buf, e.id)
		buf = binary.LittleEndian.AppendUint32(buf, e.kind)
		buf = binary.LittleEndian.AppendUint32(buf, uint32(e.at))
		buf = binary.LittleEndian.AppendUint16(buf, uint16(e.at>>32))
		buf = binary.LittleEndian.AppendUint32(buf, e.keep)
		buf = binary.LittleEndian.AppendUint16(buf, e.app)
		buf = binary.LittleEndian.AppendUint16(buf, e.lane)
		buf = binary.LittleEndian.AppendUint16(buf, e.channel)
		if e.flags&(bookedFlag|deviceFlag) != 0 {
			buf = binary.LittleEndian.AppendUint32(buf, e.extra)
		}
	}
	for _, w := range s.running {
		buf = append(buf, byte(w.unit))
		buf = binary.LittleEndian.AppendUint32(buf, uint32(w.start/1000))
		buf = binary.LittleEndian.AppendUint32(buf, uint32(w.end/1000))
	}
	return append(buf, s.counters...)
}

// prune drops what nobody needs at this time (Unix ms). Events that a broken
// clock wrote far into the future are brought nearer, so that they do not count
// for ever; bookings belong there.
func (s *state) prune(at int64) {
	now, far := uint32(at/1000), at+farFuture.Milliseconds()
	kept, moved := s.events[:0], false
	for _, e := range s.events {
		if e.at > far && !e.booked() {
			longest := uint32((2*maxWindow + skew).Seconds())
			e.at, e.keep, moved = far, min(e.keep, seconds(far)+longest), true
		}
		if e.keep > now {
			kept = append(kept, e)
		}
	}
	if s.events = kept; moved {
		sorted(s.events)
	}
	running := s.running[:0]
	for _, w := range s.running {
		if w.end+maxDay.Milliseconds() > at { // the window after it may begin at its end
			running = append(running, w)
		}
	}
	s.running = running
	counters := s.counters[:0]
	for b := s.counters; len(b) > 0; {
		n := counterSize + int(binary.LittleEndian.Uint16(b[12:]))
		if binary.LittleEndian.Uint32(b[8:]) > now {
			counters = append(counters, b[:n]...)
		}
		b = b[n:]
	}
	s.counters = counters
}

// until is the Unix second up to which anything in the state is needed.
func (s *state) until() uint32 {
	last := uint32(0)
	for i := range s.events {
		last = max(last, s.events[i].keep)
	}
	for b := s.counters; len(b) > 0; b = b[counterSize+int(binary.LittleEndian.Uint16(b[12:])):] {
		last = max(last, binary.LittleEndian.Uint32(b[8:]))
	}
	return last
}

// stamp identifies a state in the compare-and-set.
func stamp(stored []byte) []byte {
	if len(stored) == 0 {
		return nil
	}
	return stored[:stampSize]
}
