package limits

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// event is one allowed notification.
type event struct {
	id   uint64 // hash of the notification id
	kind uint32 // hash of its type
	at   int64  // Unix ms
}

// The state of a user as stored:
//
//	byte 0       version, 1
//	bytes 1-8    xxhash64 of all that follows
//	bytes 9-16   base, Unix ms
//	then 16 bytes per event: id hash 8, type hash 4, ms since the base 4
//
// Little-endian. The first nine bytes stand for the whole value in the
// compare-and-set: equal hash, equal content.
const (
	stateVersion = 1
	stampSize    = 9
	headerSize   = 17
	eventSize    = 16
)

var errDamaged = errors.New("damaged limiter state")

// decodeState appends the events of a stored state to buf. No state (nil or
// empty) has none. A version it does not know is an error: a newer worker
// wrote it, and reading it as empty would grant every limit again.
func decodeState(buf []event, state []byte) ([]event, error) {
	if len(state) == 0 {
		return buf, nil
	}
	if v := state[0]; v != stateVersion {
		return nil, fmt.Errorf("limiter state of unknown version %d, this worker knows %d", v, stateVersion)
	}
	if len(state) < headerSize || (len(state)-headerSize)%eventSize != 0 ||
		binary.LittleEndian.Uint64(state[1:]) != xxhash.Sum64(state[stampSize:]) {
		return nil, errDamaged
	}
	base := int64(binary.LittleEndian.Uint64(state[stampSize:]))
	for s := state[headerSize:]; len(s) > 0; s = s[eventSize:] {
		buf = append(buf, event{
			id:   binary.LittleEndian.Uint64(s),
			kind: binary.LittleEndian.Uint32(s[8:]),
			at:   base + int64(binary.LittleEndian.Uint32(s[12:])),
		})
	}
	return buf, nil
}

// encodeState appends a state to buf. All events lie within 49 days of each
// other: prune sees to that.
func encodeState(buf []byte, events []event) []byte {
	base := events[0].at
	for i := range events {
		base = min(base, events[i].at)
	}
	start := len(buf)
	buf = append(buf, stateVersion, 0, 0, 0, 0, 0, 0, 0, 0)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(base))
	for i := range events {
		e := &events[i]
		buf = binary.LittleEndian.AppendUint64(buf, e.id)
		buf = binary.LittleEndian.AppendUint32(buf, e.kind)
		buf = binary.LittleEndian.AppendUint32(buf, uint32(e.at-base))
	}
	binary.LittleEndian.PutUint64(buf[start+1:], xxhash.Sum64(buf[start+stampSize:]))
	return buf
}

// stamp identifies a state in the compare-and-set.
func stamp(state []byte) []byte {
	if len(state) == 0 {
		return nil
	}
	return state[:stampSize]
}

// prune drops the events that no rule needs any more at this time. Those that
// a broken clock wrote far into the future are brought nearer, so that they do
// not count for ever.
func prune(events []event, rules []rule, at int64) []event {
	kept := events[:0]
	for _, e := range events {
		e.at = min(e.at, at+farFuture.Milliseconds())
		for i := range rules {
			if r := &rules[i]; e.at > at-r.window-skew.Milliseconds() && r.about(e.kind) {
				kept = append(kept, e)
				break
			}
		}
	}
	if over := len(kept) - maxEvents; over > 0 {
		kept = kept[over:]
	}
	return kept
}
