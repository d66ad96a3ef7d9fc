package h2

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"unsafe"

	"golang.org/x/net/http2"
)

// What is not read ahead costs time and nothing else, so only the sums tell.
func TestWhatIsReadAhead(t *testing.T) {
	plain := func() *Request {
		return &Request{Path: []byte("/a"), Header: []Field{{Name: "b", Value: []byte("c")}}, Body: bytes.Repeat([]byte("d"), usualBody+line)}
	}
	empty := []byte{1}[:0]
	// A byte more on a line is one more in the sum.
	for _, tt := range []struct {
		line                string
		change              func(*Request)
		check, send, answer byte
	}{
		{"the path, and how the request begins", func(r *Request) { r.Path[0]++ }, 1, 1, 0},
		{"the end of the path", func(r *Request) { r.Path[1]++ }, 1, 1, 0},
		{"a header", func(r *Request) { r.Header[0].Indexing++ }, 1, 1, 0},
		{"its value", func(r *Request) { r.Header[0].Value[0]++ }, 1, 1, 0},
		{"a header without a value", func(r *Request) { r.Header = append(r.Header, Field{Indexing: NotIndexed}) }, 1, 1, 0},
		{"the beginning of the body", func(r *Request) { r.Body[0]++ }, 0, 1, 0},
		{"its last line", func(r *Request) { r.Body[usualBody-line]++ }, 0, 1, 0},
		{"what is behind what is usual", func(r *Request) { r.Body[usualBody]++ }, 0, 0, 0},
		{"how long the path is", func(r *Request) { r.Path = append(r.Path[:1:1], '/', 'a') }, 1, 1, 0},
		{"how large the body's memory is", func(r *Request) { r.Body = append(make([]byte, 0, cap(r.Body)+1), r.Body...) }, 1, 1, 0},
		{"the identity", func(r *Request) { r.Identity++ }, 1, 1, 0},
		{"the outcome", func(r *Request) { r.Outcome++ }, 0, 0, 1},
		{"the answer", func(r *Request) { r.Answer.Body = []byte("e") }, 1, 1, 1},
		{"how often it was sent", func(r *Request) { r.tries++ }, 1, 1, 1},
		{"the lane", func(r *Request) { r.lane++ }, 1, 1, 1},
		{"a value of the last answer", func(r *Request) { r.Answer.Header = [][]byte{nil, {1}} }, 0, 0, 1},
		{"one that is empty now", func(r *Request) { r.Answer.Header = [][]byte{empty} }, 0, 0, 1},
	} {
		r, changed := plain(), plain()
		tt.change(changed)
		for _, of := range []struct {
			what string
			sum  func(*Request) byte
			want byte
		}{
			{"to check", func(r *Request) byte { return aheadToCheck([]*Request{r}) }, tt.check},
			{"to send", func(r *Request) byte { return aheadToSend([]*Request{r}) }, tt.send},
			{"to answer", (*Request).answerLines, tt.answer},
		} {
			if got := of.sum(changed) - of.sum(r); got != of.want {
				t.Errorf("%s, %s: %d more, want %d", tt.line, of.what, got, of.want)
			}
		}
		if got := aheadToSend([]*Request{r, changed}); got != aheadToSend([]*Request{r})+aheadToSend([]*Request{changed}) {
			t.Errorf("%s: of two requests %d", tt.line, got)
		}
	}
}

// The requests that HEADERS frames answer are read, whatever else is between them; what is
// no whole frame, and streams that are not open, end or add nothing.
func TestAnswersThatAreReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.fill(posts(3)...)
		h.send()
		c := h.c
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, id := range []uint32{1, 3, 5} {
			c.streams.get(id).req.Answer.Header = [][]byte{{byte(10 * (i + 1))}}
		}
		base := c.streams.get(1).req.answerLines() - 10 // as every request has
		frame := func(kind http2.FrameType, id uint32, payload ...byte) []byte {
			return append(appendFrameHeader(nil, len(payload), kind, 4, id), payload...)
		}
		for _, tt := range []struct {
			what string
			in   []byte
			want byte
		}{
			{"nothing", nil, 0},
			{"two", slices.Concat(frame(http2.FrameHeaders, 1, 0x88), frame(http2.FrameHeaders, 5, 0x88)), 2*base + 40},
			{"others between them", slices.Concat(frame(http2.FrameData, 1, 1, 2, 3), frame(http2.FrameHeaders, 3), frame(http2.FramePing, 0, make([]byte, 8)...), frame(http2.FrameHeaders, 1, 0x88)), 2*base + 30},
			{"one that is long", slices.Concat(frame(http2.FrameHeaders, 1, make([]byte, 300)...), frame(http2.FrameHeaders, 3)), 2*base + 30},
			{"part of one", frame(http2.FrameHeaders, 1, 0x88)[:frameHeader], base + 10},
			{"less than its header", frame(http2.FrameHeaders, 1)[:frameHeader-1], 0},
			{"one that says it is longer than all", append([]byte{0xff, 0xff, 0xff, byte(http2.FrameHeaders), 4, 0, 0, 0, 3}, frame(http2.FrameHeaders, 1)...), base + 20},
			{"streams that are not open", slices.Concat(frame(http2.FrameHeaders, 0), frame(http2.FrameHeaders, 7), frame(http2.FrameHeaders, maxStream)), 0},
			{"a reserved bit", frame(http2.FrameHeaders, 1<<31|1), base + 10},
		} {
			if got := c.aheadToAnswer(tt.in); got != tt.want {
				t.Errorf("%s: the sum is %d, want %d", tt.what, got, tt.want)
			}
		}
		s := c.streams.get(3)
		c.abandon(s, http2.ErrCodeCancel)
		if got := c.aheadToAnswer(frame(http2.FrameHeaders, 3)); got != 0 {
			t.Errorf("of a stream that was given up: %d", got)
		}
	})
}

// Wherever a request begins in a line, each of its lines has a field that is read ahead.
func TestEachLineOfARequestIsReadAhead(t *testing.T) {
	var r Request
	const middle = line / 2 // memory begins with a multiple of it
	for _, begins := range []uintptr{0, middle} {
		lines := make([]bool, (begins+unsafe.Sizeof(r)+line-1)/line)
		for _, at := range []uintptr{
			unsafe.Offsetof(r.Path) + 8, unsafe.Offsetof(r.Body) + 16, unsafe.Offsetof(r.Identity), // a slice's length and capacity
			unsafe.Offsetof(r.Answer) + unsafe.Offsetof(r.Answer.Body) + 8, unsafe.Offsetof(r.tries), unsafe.Offsetof(r.lane),
		} {
			lines[(begins+at)/line] = true
		}
		if at := slices.Index(lines, false); at >= 0 {
			t.Errorf("of a request that begins %d bytes behind a line's beginning, line %d is not read", begins, at)
		}
	}
}
