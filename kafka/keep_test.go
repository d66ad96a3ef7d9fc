package kafka

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// A record whose key and headers are too large is dead, in every kind of topic. Only its
// place and size are kept.
func TestALargeEnvelopeIsDead(t *testing.T) {
	envelope := func(key, value, name, header int) *kgo.Record {
		r := &kgo.Record{Topic: "push", Offset: 7, Timestamp: start, Key: make([]byte, key), Value: make([]byte, value)}
		if name+header > 0 {
			r.Headers = []kgo.RecordHeader{{Key: strings.Repeat("h", name), Value: make([]byte, header)}}
		}
		return r
	}
	for _, tt := range []struct {
		reason   string
		record   *kgo.Record
		tooLarge bool
		detail   string
		key      int // bytes of the key that are kept
	}{
		{"the greatest key", envelope(64<<10, 1, 0, 0), false, "", 64 << 10},
		{"a key over that", envelope(64<<10+1, 1, 0, 0), true, "headers", 0},
		{"headers over that", envelope(100, 1, 10, maxEnvelope-109), true, "headers", 100},
		{"a header's name over that", envelope(0, 1, maxEnvelope+1, 0), true, "headers", 0},
		{"headers up to that", envelope(100, 1, 10, maxEnvelope-110), false, "", 100},
		{"the greatest value", envelope(1, decode.MaxValue, 0, 0), false, "", 1},
		{"a value over that", envelope(1, decode.MaxValue+1, 0, 0), true, "", 1},
	} {
		for _, topics := range [][]SourceTopic{mainTopic("push"), tier("push", time.Second)} {
			t.Run(fmt.Sprint(tt.reason, topics[0].Kind), func(t *testing.T) {
				a := part(options(func(o *SourceOptions) { o.Topics = topics }), 0)
				if topics[0].Kind == Retry {
					if over := len(tt.record.Key) + headersSize(tt.record.Headers); over > maxEnvelope { // the fleet's own headers come on top
						tt.record.Headers = append(slices.Clone(tt.record.Headers), header("pf-own", strings.Repeat("x", maxOwn)))
					}
					tt.record.Headers = append(tt.record.Headers[:len(tt.record.Headers):len(tt.record.Headers)], kgo.RecordHeader{Key: "pf-v", Value: []byte("1")})
				}
				a.take([]*kgo.Record{tt.record}, start)
				if len(a.waiting) != 1 || a.stopped != nil {
					t.Fatalf("%d waiting, stopped by %v", len(a.waiting), a.stopped)
				}
				it := a.topic.items(a.waiting)[0]
				if dead := it.Verdict == push.Dead && it.Reason == push.TooLarge; dead != tt.tooLarge {
					t.Fatalf("got %v (%s), want dead %v", it.Verdict, it.Reason, tt.tooLarge)
				}
				if tt.tooLarge && (it.Detail != tt.detail || it.Value != nil || len(it.Key) != tt.key || len(it.Trace) > 0) {
					t.Errorf("got detail %q, %d bytes of value, %d of key, %d headers; want %q, 0, %d, 0", it.Detail, len(it.Value), len(it.Key), len(it.Trace), tt.detail, tt.key)
				}
				if want := len(tt.record.Key) + len(tt.record.Value) + headersSize(tt.record.Headers); it.Size != want {
					t.Errorf("got size %d, want %d", it.Size, want)
				}
			})
		}
	}
}

func headersSize(hs []kgo.RecordHeader) (n int) {
	for _, h := range hs {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// A copy has more headers than its record had. A record that was accepted must not become
// too large by being handed over.
func TestTheCopyOfTheGreatestEnvelopeIsAlive(t *testing.T) {
	p := &Producer{options: ProducerOptions{Topic: "push", Tiers: []Tier{{"1s", time.Second}}}}
	main := part(options(func(o *SourceOptions) { o.Topics = mainTopic("push") }), 0)
	main.take([]*kgo.Record{{Topic: "push", Offset: 7, Timestamp: start, Value: []byte("{}"), Key: make([]byte, maxEnvelope-maxOthers),
		Headers: []kgo.RecordHeader{header("a", strings.Repeat("x", maxOthers-headerBytes-1))}}}, start)
	it := &main.topic.items(main.waiting)[0]
	h := pipeline.Handover{Item: it, To: pipeline.ToRetry, Attempt: 1, NotBefore: start, Devices: slices.Repeat([]string{"0123456789abcdef"}, 100)}
	r, err := p.record(&h, start)
	if err != nil {
		t.Fatal(err)
	}
	retry := part(options(func(o *SourceOptions) { o.Topics = tier("push", time.Second) }), 0)
	retry.take([]*kgo.Record{r}, start)
	if got := retry.topic.items(retry.waiting)[0]; got.Verdict != push.Undecided || got.Attempt != 1 || len(got.Devices) != 100 {
		t.Errorf("got the copy %v (%s), attempt %d, for %d devices", got.Verdict, got.Reason, got.Attempt, len(got.Devices))
	}
}

// A record keeps a bounded part of its foreign headers, and always traceparent.
func TestABoundedPartOfOthersHeadersGoesOn(t *testing.T) {
	long := header("long", strings.Repeat("x", maxOthers))
	many := make([]kgo.RecordHeader, 10_000)
	for _, tt := range []struct {
		reason string
		hs     []kgo.RecordHeader
		keys   string
	}{
		{"what fits", []kgo.RecordHeader{header("a", "1"), header("b", "2")}, "a b"},
		{"one that does not is left out, not those behind it", []kgo.RecordHeader{header("a", "1"), long, header("b", "2")}, "a b"},
		{"traceparent takes no room from the others", []kgo.RecordHeader{header("a", strings.Repeat("x", maxOthers-headerBytes-1)), header("traceparent", "t"), header("b", "")}, "a traceparent"},
		{"a traceparent that is none", []kgo.RecordHeader{header("traceparent", strings.Repeat("x", maxOthers))}, ""},
		{"a second traceparent is any header", []kgo.RecordHeader{header("traceparent", "1"), header("traceparent", strings.Repeat("x", maxOthers))}, "traceparent"},
	} {
		var keys []string
		for _, h := range appendTrace(nil, tt.hs, new(topic)) {
			keys = append(keys, h.Key)
		}
		if got := strings.Join(keys, " "); got != tt.keys {
			t.Errorf("%s: got %q, want %q", tt.reason, got, tt.keys)
		}
	}
	parents := slices.Repeat([]kgo.RecordHeader{header("traceparent", strings.Repeat("x", maxTraceparent))}, 100)
	if n := len(appendTrace(nil, parents, new(topic))); n > 1+maxOthers/maxTraceparent {
		t.Errorf("got %d traceparents: only the first needs no room", n)
	}
	if n := len(appendTrace(nil, many, new(topic))); n != maxOthers/headerBytes {
		t.Errorf("got %d empty headers, want %d: each takes memory", n, maxOthers/headerBytes)
	}
}

// A kept record shares no memory with the client, nor with the records kept next to it.
func TestWhatIsKeptIsACopy(t *testing.T) {
	for _, size := range []int{1, 100, largeBytes - 1, largeBytes, 50_000} {
		a := part(options(nil), 0)
		records := make([]*kgo.Record, 20)
		for i := range records {
			records[i] = &kgo.Record{Topic: "push", Timestamp: start, Key: bytes.Repeat([]byte("k"), 3), Value: bytes.Repeat([]byte{byte(i)}, size),
				Headers: []kgo.RecordHeader{{Key: "a", Value: bytes.Repeat([]byte("v"), 3)}}}
		}
		a.take(records, start)
		for i, r := range records {
			clear(r.Key)
			clear(r.Value)
			clear(r.Headers[0].Value)
			h := a.waiting[i]
			if want := 3 + size + headerBytes + 4; h.bytes() != want {
				t.Errorf("got %d bytes, want %d", h.bytes(), want)
			}
			_ = append(h.value, 0xff) // must not overwrite its neighbour
		}
		for i, h := range a.waiting {
			if string(h.key) != "kkk" || !bytes.Equal(h.value, bytes.Repeat([]byte{byte(i)}, size)) || string(h.trace[0].Value) != "vvv" {
				t.Fatalf("record %d of %d bytes changed", i, size)
			}
		}
	}
}

// An implausible time is replaced: otherwise copies would have it as pf-first-seen.
func TestATimeThatCannotBeIsNotBelieved(t *testing.T) {
	polled := time.UnixMilli(1_790_000_000_000)
	millis := func(ms int64) time.Time { return time.Unix(0, ms*1e6) } // as the client converts them
	for _, tt := range []struct {
		reason   string
		at, want time.Time
	}{
		{"just now", polled.Add(-time.Second), polled.Add(-time.Second)},
		{"a clock that is ahead a little", polled.Add(time.Minute), polled.Add(time.Minute)},
		{"one that is ahead by more", polled.Add(time.Minute + time.Millisecond), polled.Add(time.Minute)},
		{"nanoseconds", millis(polled.UnixNano()), polled.Add(time.Minute)},
		{"other nanoseconds", millis(polled.UnixNano() + 123_456_789_123), polled.Add(time.Minute)},
		{"microseconds", millis(polled.UnixMicro()), polled.Add(time.Minute)},
		{"none", millis(-1), polled},
		{"below zero", millis(-2), time.UnixMilli(0)},
		{"1970", millis(0), time.UnixMilli(0)},
	} {
		for _, topics := range [][]SourceTopic{mainTopic("push"), tier("push", time.Second)} {
			a := part(options(func(o *SourceOptions) { o.Topics = topics }), 0)
			a.take([]*kgo.Record{{Topic: "push", Timestamp: tt.at, Headers: []kgo.RecordHeader{header("pf-v", "1")}}}, polled)
			it := a.topic.items(a.waiting)[0]
			if !it.FirstSeen.Time().Equal(tt.want) || !it.Timestamp.Time().Equal(tt.want) {
				t.Errorf("%s: got first seen %v for timestamp %v, want %v", tt.reason, it.FirstSeen.Time().UTC(), it.Timestamp.Time().UTC(), tt.want.UTC())
			}
			// Read again a day later, it would look just as new.
			if believed := tt.at.Equal(tt.want); it.Confirm == believed {
				t.Errorf("%s: got confirm %v with a trusted time %v", tt.reason, it.Confirm, believed)
			}
			copied := retryHeadersOf(&pipeline.Handover{Item: &it})
			if _, err := parseRetryHeaders(copied); err != nil {
				t.Errorf("%s: its own copy cannot be read: %v", tt.reason, err)
			}
		}
	}
}
