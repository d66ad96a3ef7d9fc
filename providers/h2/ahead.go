package h2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// Memory that comes at once. The requests of a pool are larger than a processor's cache:
// 10,000 of them take some 10 MB, and a request that was sent 50 ms ago is in none. A step
// that comes to such a line waits for it, and asks for the next one only afterwards; reads
// that do not need each other's results are under way together (push.Prefetching has the
// times). So each loop over requests first reads a byte of each line that it will need.
// The functions return sums and are not inlined: who sees that nobody needs a sum may leave
// the reads out.

// stretch is how many requests SubmitTo reads ahead. A write or a read has some more of them
// now and then; either fits into a second-level cache.
const stretch = 64

// usualBody is how much of a body is read ahead, in bytes: most are shorter, and what is
// behind it comes by itself, as it is copied in order.
const usualBody = 512

// line is how much memory a processor reads at once, in bytes.
const line = 64

// aheadToCheck reads what SubmitTo looks at, and sets, of requests.
//
//go:noinline
func aheadToCheck(rs []*Request) (sum byte) {
	for _, r := range rs {
		sum += r.lines() + r.textLines()
	}
	return sum
}

// aheadToSend reads what frames are made of.
//
//go:noinline
func aheadToSend(rs []*Request) (sum byte) {
	for _, r := range rs {
		sum += r.lines() + r.textLines()
		for at := 0; at < min(len(r.Body), usualBody); at += line {
			sum += r.Body[at]
		}
	}
	return sum
}

// aheadToAnswer reads what the HEADERS frames in b will touch of the requests that they
// answer; mu is held. It judges nothing: what is no whole frame ends it.
//
//go:noinline
func (c *conn) aheadToAnswer(b []byte) (sum byte) {
	for len(b) >= frameHeader {
		n := frameHeader + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
		if http2.FrameType(b[3]) == http2.FrameHeaders {
			id := binary.BigEndian.Uint32(b[5:]) & maxStream
			if s := c.streams.get(id); s != nil && s.req != nil {
				sum += s.req.answerLines()
			}
		}
		if n > len(b) {
			break
		}
		b = b[n:]
	}
	return sum
}

// lines sums a byte of each line of r itself, which begins with a line, or in the middle of one
// if it is part of something else.
func (r *Request) lines() byte {
	return byte(len(r.Path)) + byte(cap(r.Body)) + byte(r.Identity) + byte(len(r.Answer.Body)) + byte(r.tries) + byte(r.lane)
}

// textLines sums a byte of each line of its path and headers; values are short.
func (r *Request) textLines() (sum byte) {
	if n := len(r.Path); n > 0 {
		sum += r.Path[0] + r.Path[n-1]
	}
	for i := range r.Header {
		f := &r.Header[i]
		if sum += byte(f.Indexing); len(f.Value) > 0 {
			sum += f.Value[0]
		}
	}
	return sum
}

// answerLines sums a byte of each line that an answer is written to.
func (r *Request) answerLines() byte {
	a := &r.Answer
	sum := byte(r.Outcome) + byte(len(a.Body)) + byte(r.tries) + byte(r.lane)
	for _, v := range a.Header {
		if cap(v) > 0 {
			sum += v[:1][0]
		}
	}
	return sum
}
