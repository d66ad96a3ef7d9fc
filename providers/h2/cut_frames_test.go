package h2

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// Frames may arrive in pieces, many at once, and across the end of the read
// buffer. Their meaning is the same.
func TestFramesAreCutAnywhere(t *testing.T) {
	var blob, body []byte
	add := func(n int) {
		part := bytes.Repeat([]byte{byte('a' + len(body)%26)}, n)
		body = append(body, part...)
		blob = append(blob, rawFrame(http2.FrameData, 0, 1, part...)...)
	}
	blob = append(blob, rawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, 0x88)...)
	for n := range 300 {
		add(n)
	}
	for range 10 {
		add(maxFrame)
		add(maxFrame - 1)
		add(1)
	}
	blob = append(blob, rawFrame(http2.FrameData, http2.FlagDataEndStream, 1)...)
	for _, piece := range []int{11, 1000, readBuffer - 1, len(blob)} {
		t.Run(fmt.Sprint(piece, " bytes at a time"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.playOnce(func(c *peerConn, _ uint32) {
					for left := blob; len(left) > 0; {
						n := min(piece, len(left))
						c.out.Write(left[:n])
						left = left[n:]
					}
				})
				p := s.pool(Options{Connections: 1, MaxAnswer: 1 << 20})
				r := post("/a")
				submit(t, p, r).wait()
				if r.Outcome != Answered || r.Answer.Status != 200 || !bytes.Equal(r.Answer.Body, body) {
					t.Errorf("%v, %v, %d bytes of %d", r.Outcome, r.Err, len(r.Answer.Body), len(body))
				}
			})
		})
	}
}

// A server that sends many control frames but also many answers is honest:
// answers outweigh them.
func TestAnswersOutweighOtherFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		for n := range maxScore {
			r := post("/a")
			h.fill(r)
			h.send()
			id := uint32(2*n + 1)
			h.read(times(2, appendWindowUpdate(nil, id, 1)), appendWindowUpdate(nil, 0, 100), rawFrame(http2.FrameHeaders, 5, id, 0x88))
			if r.Outcome != Answered {
				t.Fatalf("request %d: %v, %v", n, r.Outcome, r.Err)
			}
		}
	})
}
