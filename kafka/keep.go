package kafka

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// What is kept of a record, in bytes. decode.MaxValue is the same for its
// value.
const (
	// maxEnvelope is the largest total size of the key and the headers.
	maxEnvelope = 64 << 10
	// maxOwn is what the headers of this fleet may add to that in a copy: 100
	// devices take 2 KB.
	maxOwn = 16 << 10
	// maxOthers bounds the foreign headers that go on with a record and its copies.
	// Each counts headerBytes in addition to its name and value, so that a great
	// number of empty headers is bounded too.
	maxOthers   = 8 << 10
	headerBytes = 40
	// maxTraceparent is larger than any version of that header.
	maxTraceparent = 256
	traceparent    = "traceparent"
)

// Which part of a record is too large, as the detail of its verdict. For the value
// the detail is empty.
const (
	largeHeaders = "headers"
	largeBatch   = "batch"
)

// polledRecord is a polled record that is in no batch yet. It shares no memory with
// the client: otherwise one record would keep a whole fetch in memory.
type polledRecord struct {
	partition push.Partition
	offset    int64
	timestamp time.Time
	undated   bool // its own timestamp is not plausible, so it may be old
	key       []byte
	value     []byte
	trace     []pipeline.RecordHeader
	headers   *retryHeaders // of retry, deferral and hold topics only
	due       time.Time     // when it may be handed out, not before it came
	tooLarge  bool          // and so without a value
	large     string        // which part of it is
	size      int           // of key, value and headers as polled; of a batch too large to unpack, the limit
}

// bytes returns the memory that the record takes up here.
func (h *polledRecord) bytes() int {
	var devices []string
	if h.headers != nil {
		devices = h.headers.devices
	}
	return keptBytes(h.key, h.value, h.trace, devices)
}

// keptBytes returns how many bytes of a record are kept.
func keptBytes(key, value []byte, trace []pipeline.RecordHeader, devices []string) int {
	n := len(key) + len(value)
	for i := range trace {
		n += headerBytes + len(trace[i].Key) + len(trace[i].Value)
	}
	for _, d := range devices {
		n += headerBytes + len(d)
	}
	return n
}

// keep copies a polled record. It returns an error if the record is from a retry or
// hold topic and its headers cannot be read.
func (a *assignment) keep(r *kgo.Record, now time.Time) (polledRecord, error) {
	h := polledRecord{partition: a.partition, offset: r.Offset, timestamp: plausible(r.Timestamp, now)}
	h.undated = !h.timestamp.Equal(r.Timestamp)
	around := envelope(r)
	h.size = around + len(r.Value)
	most := maxEnvelope
	if a.topic.delayed() {
		most += maxOwn
	}
	switch {
	case around > most:
		h.tooLarge, h.large = true, largeHeaders
		if a.topic.delayed() {
			h.headers = new(retryHeaders)
		}
		if len(r.Key) <= maxOthers {
			h.key = a.pages.keep(r.Key)
		}
		return h, nil
	case a.topic.delayed():
		var err error
		if h.headers, err = parseRetryHeaders(r.Headers); err != nil {
			return polledRecord{}, err
		}
		if !h.headers.firstSeen.IsZero() {
			h.headers.firstSeen = plausible(h.headers.firstSeen, now)
		}
	}
	h.key, h.trace = a.pages.keep(r.Key), a.pages.keepTrace(r.Headers, a.topic)
	if h.tooLarge = len(r.Value) > decode.MaxValue; !h.tooLarge {
		h.value = a.pages.keep(r.Value)
	}
	return h, nil
}

// envelope returns the total size of a record's key and headers.
func envelope(r *kgo.Record) int {
	n := len(r.Key)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// keepUnread adds the next n records that cannot be unpacked to waiting. Only their
// offsets are known; they get the current time.
func (a *assignment) keepUnread(n int, now time.Time) {
	for ; n > 0 && a.unread.From < a.unread.To; n-- {
		h := polledRecord{partition: a.partition, offset: a.unread.From, timestamp: now, due: now, tooLarge: true, large: largeBatch, size: maxUnpacked}
		if a.topic.delayed() {
			h.headers = new(retryHeaders)
		}
		a.unread.From++
		a.waiting = append(a.waiting, h)
		a.next = h.offset + 1
	}
}

// plausible returns a record's time, limited to between 1970 and a minute from now. If
// the producer gave none (-1), it is now.
func plausible(t, now time.Time) time.Time {
	latest := now.Add(time.Minute)
	switch ms := t.UnixMilli(); {
	case t.Nanosecond()%int(time.Millisecond) != 0:
		// A record's time is in milliseconds. The client converts it to nanoseconds, and
		// a time in the far future (from a producer that wrote nanoseconds) overflows to
		// an arbitrary time.
		return latest
	case ms == -1:
		return now
	case ms < 0:
		return time.UnixMilli(0)
	case t.After(latest):
		return latest
	}
	return t
}

// appendTrace appends the headers that stay with a record and its copies: traceparent,
// as many of the other foreign headers as fit, and those of ours that the topic carries.
// They share memory with hs.
func appendTrace(out []pipeline.RecordHeader, hs []kgo.RecordHeader, of *topic) []pipeline.RecordHeader {
	room := maxOthers
	for i := range hs {
		key, size := hs[i].Key, headerBytes+len(hs[i].Key)+len(hs[i].Value)
		switch {
		case key == traceparent && len(hs[i].Value) <= maxTraceparent && !has(out, key):
		case strings.HasPrefix(key, headerPrefix):
			if !of.carries(&hs[i]) || has(out, key) {
				continue
			}
		case size > room:
			continue
		default:
			room -= size
		}
		out = append(out, pipeline.RecordHeader{Key: key, Value: hs[i].Value})
	}
	return out
}

func has(trace []pipeline.RecordHeader, key string) bool {
	return slices.ContainsFunc(trace, func(h pipeline.RecordHeader) bool { return h.Key == key })
}

// pages allocates memory for kept records, from pages that the records of one partition
// share: they come and go together. Large values get memory of their own.
type pages struct {
	free    []byte
	names   []string                // of headers that came before: producers write the same ones again and again
	headers []pipeline.RecordHeader // free ones
	scratch []pipeline.RecordHeader // empty between two calls
}

const (
	pageBytes   = 32 << 10
	largeBytes  = pageBytes / 8
	pageHeaders = pageBytes / 4 / headerBytes
	// So many names of headers are remembered, each of at most so many bytes.
	maxNames     = 16
	maxNameBytes = 64
)

// keep returns a copy of b; nil stays nil.
func (p *pages) keep(b []byte) []byte {
	if b == nil || len(b) >= largeBytes {
		return slices.Clone(b)
	}
	if len(b) > len(p.free) {
		p.free = make([]byte, pageBytes)
	}
	kept := p.free[:len(b):len(b)]
	p.free = p.free[len(b):]
	copy(kept, b)
	return kept
}

// name returns a copy of a header's name, one for all headers of the usual names.
func (p *pages) name(s string) string {
	if i := slices.Index(p.names, s); i >= 0 {
		return p.names[i]
	}
	s = strings.Clone(s)
	if len(p.names) < maxNames && len(s) <= maxNameBytes {
		p.names = append(p.names, s)
	}
	return s
}

// keepTrace returns copies of the headers that stay with a record; nil = none does.
func (p *pages) keepTrace(hs []kgo.RecordHeader, of *topic) []pipeline.RecordHeader {
	trace := appendTrace(p.scratch[:0], hs, of)
	if len(trace) == 0 {
		return nil
	}
	if len(trace) > len(p.headers) {
		p.headers = make([]pipeline.RecordHeader, max(pageHeaders, len(trace)))
	}
	kept := p.headers[:len(trace):len(trace)]
	p.headers = p.headers[len(trace):]
	for i := range trace {
		kept[i] = pipeline.RecordHeader{Key: p.name(trace[i].Key), Value: p.keep(trace[i].Value)}
	}
	clear(trace) // it shares memory with the client's records
	p.scratch = trace[:0]
	return kept
}
