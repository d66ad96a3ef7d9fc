package engine

import (
	"encoding/binary"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

const (
	wheelTick  = 500 * time.Microsecond
	wheelTicks = 8192 // about four seconds
)

// batch is encoded answers that go out together, and what their session knows
// them by.
type batch struct {
	frames []byte
	owed   []owed // one per answer that is complete with these frames
}

// owed is an answer that has been decided and is not out yet.
type owed struct {
	receipt Receipt
	stream  uint32
}

// frameLength is that of the whole frame at the beginning of p.
func frameLength(p []byte) int { return headerSize + (int(p[0])<<16 | int(p[1])<<8 | int(p[2])) }

// complete is the streams that end within the first bytes.
func (b *batch) complete(bytes int) map[uint32]bool {
	streams := map[uint32]bool{}
	for p := b.frames[:bytes]; len(p) >= headerSize && frameLength(p) <= len(p); p = p[frameLength(p):] {
		kind, flags := http2.FrameType(p[3]), http2.Flags(p[4])
		if (kind == http2.FrameHeaders || kind == http2.FrameData) && flags.Has(http2.FlagDataEndStream) {
			streams[binary.BigEndian.Uint32(p[5:])] = true
		}
	}
	return streams
}

// remove takes the frames of some streams out, and hands over what was owed to
// them.
func (b *batch) remove(match func(stream uint32) bool, gone func(owed)) {
	kept := b.frames[:0]
	for p := b.frames; len(p) > 0; {
		n := frameLength(p)
		if id := binary.BigEndian.Uint32(p[5:]); id == 0 || !match(id) {
			kept = append(kept, p[:n]...)
		}
		p = p[n:]
	}
	b.frames = kept
	left := b.owed[:0]
	for _, o := range b.owed {
		if match(o.stream) {
			gone(o)
		} else {
			left = append(left, o)
		}
	}
	b.owed = left
}

// take takes the answer to one stream out, and reports whether it was there.
func (b *batch) take(stream uint32) (taken owed, ok bool) {
	if !slices.ContainsFunc(b.owed, func(o owed) bool { return o.stream == stream }) {
		return owed{}, false
	}
	b.remove(func(id uint32) bool { return id == stream }, func(o owed) { taken = o })
	return taken, true
}

// wheel keeps encoded answers until they are due. Those whose times are within
// one tick go out together, when the last of them is due: an answer is never
// early, and less than two ticks late (one, unless its tick has begun already)
// plus what the timer is. There is no timer, goroutine or allocation per answer.
type wheel struct {
	slots []slot // made at the first use
	free  []batch
	start time.Time
	next  int64 // the first tick that has not been sent
	until int64 // behind the last tick that holds something
}

// slot is the answers of one tick.
type slot struct {
	batch
	due time.Duration // since start
}

// slot finds the batch of what is due after a latency, and notes that time. It
// returns nil when that is further off than the wheel goes around.
func (w *wheel) slot(now time.Time, latency time.Duration) *batch {
	if latency > (wheelTicks-2)*wheelTick {
		return nil
	}
	if w.slots == nil {
		w.slots, w.start = make([]slot, wheelTicks), now
	}
	since := now.Sub(w.start)
	if w.next >= w.until { // empty: it may have stood still for long
		w.next = max(w.next, int64(since/wheelTick))
	}
	tick := max(int64((since+latency)/wheelTick), w.next)
	if tick-w.next >= wheelTicks {
		return nil
	}
	w.until = max(w.until, tick+1)
	s := &w.slots[tick%wheelTicks]
	if n := len(w.free); n > 0 && s.frames == nil {
		s.batch, w.free = w.free[n-1], w.free[:n-1]
	}
	s.due = max(s.due, since+latency, time.Duration(tick)*wheelTick)
	return &s.batch
}

// due moves what is due to out. It returns how many answers that completes,
// and how long it is until the next ones; 0 when there are none.
func (w *wheel) due(now time.Time, out *batch) (answers int, wait time.Duration) {
	since := now.Sub(w.start)
	for current := int64(since / wheelTick); w.next < w.until && w.next <= current; w.next++ {
		s := &w.slots[w.next%wheelTicks]
		if len(s.owed) > 0 && s.due > since {
			break // of the present tick
		}
		answers += len(s.owed)
		if len(out.frames) == 0 && len(out.owed) == 0 {
			*out, s.batch = s.batch, *out
		} else {
			out.frames, out.owed = append(out.frames, s.frames...), append(out.owed, s.owed...)
		}
		w.empty(s)
	}
	for tick := w.next; tick < w.until; tick++ {
		if s := &w.slots[tick%wheelTicks]; len(s.owed) > 0 {
			return answers, s.due - since
		}
	}
	return answers, 0
}

// empty keeps the memory of a slot for the next one that is filled.
func (w *wheel) empty(s *slot) {
	if s.frames != nil {
		w.free = append(w.free, batch{s.frames[:0], s.owed[:0]})
	}
	*s = slot{}
}

// remove takes the answers of some streams out.
func (w *wheel) remove(match func(stream uint32) bool, gone func(owed)) {
	for tick := w.next; tick < w.until; tick++ {
		w.slots[tick%wheelTicks].remove(match, gone)
	}
}

// take takes the answer to one stream out, and reports whether it was there.
func (w *wheel) take(stream uint32) (owed, bool) {
	for tick := w.next; tick < w.until; tick++ {
		if o, ok := w.slots[tick%wheelTicks].take(stream); ok {
			return o, true
		}
	}
	return owed{}, false
}
