package h2

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A body that flow control holds back is not completed if its request has
// become stale: neither when a window opens, nor later.
func TestHeldBodyOfAStaleRequestIsAbandoned(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *Request)
		why    error
	}{
		"lease lapsed": {func(r *Request) { r.Lease = leased(time.Second) }, ErrLeaseLapsed},
		"expired":      {func(r *Request) { r.Expires = time.Now().Add(time.Second) }, ErrExpired},
	} {
		for when, opens := range map[string]time.Duration{
			"the window opens at once": 10 * time.Millisecond, // before the sweeper checks
			"it opens later":           4 * time.Second,
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
					p := s.pool(Options{Connections: 1, Timeout: time.Minute})
					warm := post("/warm")
					warm.Body = nil
					l := submit(t, p, warm)
					s.answers(1)
					l.wait()
					stale, good := post("/stale"), post("/good")
					stale.Body, good.Body = make([]byte, 100), make([]byte, 100)
					tc.change(stale)
					l = submit(t, p, stale, good)
					s.expect("both held", 2, 0)
					time.Sleep(time.Second + opens)
					synctest.Wait()
					if swept := opens > 2*sweepInterval; swept != (stale.Outcome == Ambiguous) {
						t.Errorf("before the window opens: %v", stale.Outcome)
					}
					s.conn().WriteWindowUpdate(3, 1000)
					s.conn().WriteWindowUpdate(5, 1000)
					synctest.Wait()
					if n := len(s.bodies[3]); n != 10 {
						t.Errorf("%d bytes of the stale one went out; 10 had before", n)
					}
					s.expect("only the good one", 1, 1)
					if code, ok := s.resets[3]; !ok || code != http2.ErrCodeCancel {
						t.Errorf("resets: %v", s.resets)
					}
					if stale.Outcome != Ambiguous || !errors.Is(stale.Err, tc.why) {
						t.Errorf("%v, %v", stale.Outcome, stale.Err)
					}
					s.answers(1)
					l.wait()
					wantAll(t, []*Request{good}, Answered)
				})
			})
		}
	}
}

// halted is a connection whose writer is the test: it can stop between encoding
// and writing, while the sweeper and the reader go on.
type halted struct {
	t     *testing.T
	p     *Pool
	c     *conn
	group *Group
	wrote recorder
	block *hpack.Decoder // the server's
}

func newHalted(t *testing.T) *halted {
	h := &halted{t: t, block: hpack.NewDecoder(4096, nil)}
	h.p = &Pool{opt: Options{StreamsPerConnection: 10, MaxAnswer: 100, Resends: 3, PingInterval: time.Hour, PingTimeout: time.Hour}, queue: newQueue([]Lane{{"only", 1, 10}})}
	h.p.opt.setDefaults()
	h.c = newConn(h.p, &h.wrote, &wire{Conn: &h.wrote})
	h.c.nextID, h.c.settled, h.c.warm = 1, true, true
	h.group = NewGroup(func([]*Request) {})
	return h
}

// fill queues requests and encodes them.
func (h *halted) fill(rs ...*Request) {
	h.t.Helper()
	for _, r := range rs {
		r.group = h.group
		if r.until.IsZero() {
			r.until = time.Now().Add(time.Hour)
		}
	}
	if _, err := h.p.queue.push(h.t.Context(), 0, rs); err != nil {
		h.t.Fatal(err)
	}
	h.c.mu.Lock()
	h.c.fill(time.Now())
	h.c.mu.Unlock()
}

// send writes the encoded frames and returns those that the server received, in
// words. The header blocks must decode.
func (h *halted) send() []string {
	h.t.Helper()
	if !h.c.send() {
		h.t.Fatal(h.c.mute)
	}
	b := bytes.TrimPrefix(h.wrote.b, []byte(http2.ClientPreface))
	h.wrote.b = nil
	fr := http2.NewFramer(io.Discard, bytes.NewReader(b))
	fr.ReadMetaHeaders = h.block
	var got []string
	for {
		f, err := fr.ReadFrame()
		if errors.Is(err, io.EOF) {
			return got
		}
		switch f := f.(type) {
		case nil:
			h.t.Fatal(err)
		case *http2.MetaHeadersFrame:
			got = append(got, f.PseudoValue("path"))
		case *http2.DataFrame, *http2.RSTStreamFrame:
			got = append(got, f.Header().Type.String())
		}
	}
}

func (h *halted) sweep() {
	var back handback
	h.c.sweep(time.Now(), false, &back)
	back.flush()
}

func (h *halted) read(frames ...[]byte) {
	h.t.Helper()
	h.c.mu.Lock()
	_, err := h.c.frames(slices.Concat(frames...), nil)
	h.c.mu.Unlock()
	if err != nil {
		h.t.Fatal(err)
	}
	h.c.got.flush()
}

func (h *halted) wantFrames(what string, got []string, want ...string) {
	h.t.Helper()
	if !slices.Equal(got, want) {
		h.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// The process stands still between encoding and writing, and the sweeper runs
// before the writer continues. Nothing stale is sent, the server is told
// nothing about requests that were never written, and everything else is sent
// over the same connection.
func TestSweptBetweenEncodingAndWriting(t *testing.T) {
	late := func(r *Request) *Request { r.until = time.Now().Add(time.Second); return r }
	lapsed := func(r *Request) *Request { r.Lease = leased(time.Second); return r }
	for name, tc := range map[string]struct {
		change []func(*Request) *Request // of the requests /0, /1, …; nil = never stale
		sent   []string
	}{
		"all past their deadline":  {[]func(*Request) *Request{late, late, late}, nil},
		"one swept, one stale":     {[]func(*Request) *Request{late, lapsed, nil}, []string{"/2", "DATA"}},
		"one swept, the rest good": {[]func(*Request) *Request{nil, late, nil}, []string{"/0", "DATA", "/2", "DATA"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHalted(t)
				flying := post("/flying")
				h.fill(flying)
				h.wantFrames("in flight", h.send(), "/flying", "DATA")
				window := h.c.sendWindow
				var rs []*Request
				for i, change := range tc.change {
					r := post("/" + string(rune('0'+i)))
					if change != nil {
						r = change(r)
					}
					rs = append(rs, r)
				}
				h.fill(rs...)
				time.Sleep(8 * time.Second)
				h.sweep()
				h.wantFrames("after the standstill", h.send())
				for i, r := range rs {
					switch got := [2]any{r.Outcome, r.Err}; {
					case tc.change[i] == nil && r.Outcome != Unfinished,
						tc.change[i] != nil && r.Outcome != NotAccepted,
						r.Outcome == NotAccepted && !errors.Is(r.Err, ErrDeadline) && !errors.Is(r.Err, ErrLeaseLapsed):
						t.Errorf("/%d: %v", i, got)
					}
				}
				if h.c.sendWindow != window || h.c.live != 1 || h.c.ended != 0 || h.c.retired || h.c.cause != nil {
					t.Errorf("window %d of %d, %d live, %d ended, retired %v, %v", h.c.sendWindow, window, h.c.live, h.c.ended, h.c.retired, h.c.cause)
				}
				h.fill()
				h.wantFrames("the next write", h.send(), tc.sent...)
				h.read(append(appendFrameHeader(nil, 1, http2.FrameHeaders, 5, 1), 0x88))
				wantAll(t, []*Request{flying}, Answered)
			})
		})
	}
}

// The same for a body that a window has released: its DATA is taken back, and
// its stream, which the server knows, is reset.
func TestResumedBodyIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.c.peerInitial = 10
		stale, swept, good := post("/stale"), post("/swept"), post("/good")
		stale.Lease, swept.until = leased(time.Second), time.Now().Add(time.Second)
		for _, r := range []*Request{stale, swept, good} {
			r.Body = make([]byte, 100)
		}
		h.fill(stale, swept, good)
		h.wantFrames("the start of each", h.send(), "/stale", "DATA", "/swept", "DATA", "/good", "DATA")
		update := func(id uint32) []byte { return appendWindowUpdate(nil, id, 50) }
		h.read(update(1), update(3), update(5), update(5))
		h.fill()
		if len(h.c.out) < 50+50+90 {
			t.Fatalf("%d bytes encoded", len(h.c.out))
		}
		window := h.c.sendWindow + 50 + 50 + 90
		time.Sleep(8 * time.Second)
		h.sweep()
		h.wantFrames("after the standstill", h.send())
		if h.c.sendWindow != window {
			t.Errorf("window %d, want %d", h.c.sendWindow, window)
		}
		h.fill()
		h.wantFrames("then", h.send(), "RST_STREAM", "RST_STREAM", "DATA")
		for r, why := range map[*Request]error{stale: ErrLeaseLapsed, swept: ErrDeadline} {
			if r.Outcome != Ambiguous || !errors.Is(r.Err, why) {
				t.Errorf("%s: %v, %v", r.Path, r.Outcome, r.Err)
			}
		}
		if good.Outcome != Unfinished || h.c.sendWindow != window-90 {
			t.Errorf("%v, window %d", good.Outcome, h.c.sendWindow)
		}
	})
}

// A GOAWAY between encoding and writing: requests that it does not accept are
// not written, and wait for another connection with all others that were not
// written.
func TestGoAwayBetweenEncodingAndWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.fill(post("/flying"))
		h.wantFrames("in flight", h.send(), "/flying", "DATA")
		rs := posts(3)
		h.fill(rs...)
		h.read(append(appendFrameHeader(nil, 8, http2.FrameGoAway, 0, 0), 0, 0, 0, 3, 0, 0, 0, 0))
		h.wantFrames("nothing", h.send())
		if n := h.p.queue.len(); n != 3 || h.c.live != 1 || !h.c.retired {
			t.Errorf("%d wait, %d live, retired %v", n, h.c.live, h.c.retired)
		}
		if tries := [3]int{rs[0].tries, rs[1].tries, rs[2].tries}; tries != [3]int{0, 1, 1} {
			t.Errorf("tries: %v; what was taken back has had none", tries)
		}
	})
}

// Canceling a request between encoding and writing has no effect on others.
func TestCanceledBetweenEncodingAndWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		r, other := post("/canceled"), post("/other")
		r.call = newCall("POST")
		h.fill(r, other)
		h.p.cancel(r, errCanceled)
		if r.Outcome != NotAccepted || !errors.Is(r.Err, errCanceled) {
			t.Errorf("%v, %v", r.Outcome, r.Err)
		}
		h.wantFrames("nothing", h.send())
		h.fill()
		h.wantFrames("the other", h.send(), "/other", "DATA")
	})
}

// What is being written is no longer taken back, and does not count as
// unwritten.
func TestSweptWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		r := post("/a")
		r.until = time.Now().Add(time.Second)
		h.fill(r)
		time.Sleep(10 * time.Millisecond) // a harmless standstill
		h.wantFrames("all", h.send(), "/a", "DATA")
		time.Sleep(2 * time.Second)
		h.sweep()
		if r.Outcome != Ambiguous || !errors.Is(r.Err, ErrDeadline) {
			t.Errorf("%v, %v", r.Outcome, r.Err)
		}
		h.fill()
		h.wantFrames("then", h.send(), "RST_STREAM")
	})
}

// An answer to a request that was never sent counts, and the stream ends once.
func TestAnswerToWhatIsNotWritten(t *testing.T) {
	for name, swept := range map[string]bool{"taken back": false, "swept": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHalted(t)
				r, late := post("/a"), post("/late")
				r.call = newCall("POST")
				late.Lease = leased(time.Second)
				if swept {
					r.until = time.Now().Add(time.Second)
				}
				h.fill(r, late)
				h.read(append(appendFrameHeader(nil, 1, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1), 0x88))
				time.Sleep(2 * time.Second)
				h.sweep()
				h.wantFrames("nothing", h.send())
				if r.Outcome != Answered || !r.Answer.Broken || r.Answer.Status != 200 || h.p.queue.len() != 0 || h.c.live != 0 {
					t.Errorf("%v, %+v, %d wait", r.Outcome, r.Answer, h.p.queue.len())
				}
			})
		})
	}
}

// A request that the server ends before it was written is not written. If the
// server refused it, it is sent once more, and so is everything that was
// encoded with it.
func TestEndedByTheServerBeforeItIsWritten(t *testing.T) {
	both := []string{"/other", "DATA", "/a", "DATA"}
	for name, tc := range map[string]struct {
		frame   []byte
		outcome Outcome
		then    []string
	}{
		"refused":  {appendReset(nil, 1, http2.ErrCodeRefusedStream), NotAccepted, both},
		"reset":    {appendReset(nil, 1, http2.ErrCodeInternal), Ambiguous, both[:2]},
		"answered": {append(appendFrameHeader(nil, 1, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1), 0x88), Answered, both[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHalted(t)
				r := post("/a")
				h.fill(r, post("/other"))
				h.read(tc.frame)
				h.wantFrames("nothing", h.send())
				if r.Outcome != tc.outcome {
					t.Errorf("%v, %v", r.Outcome, r.Err)
				}
				h.fill()
				h.wantFrames("then", h.send(), tc.then...)
			})
		})
	}
}

// Requests that were taken back are handed back before anything else is
// written, because a write can last until the server is given up.
func TestTakenBackBeforeTheRestIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		back := 0
		h.group = NewGroup(func(rs []*Request) { back += len(rs) })
		h.fill()
		h.send()
		h.read(appendPing(nil, 0, 1))
		late := post("/late")
		late.Lease = leased(time.Second)
		h.fill(late)
		time.Sleep(2 * time.Second)
		h.wrote.before = func() {
			if back != 1 {
				t.Errorf("%d requests are back when the PING is answered, want 1", back)
			}
		}
		h.wantFrames("but for the PING's answer", h.send())
		if h.wrote.writes != 2 {
			t.Errorf("%d writes", h.wrote.writes)
		}
	})
}

// A connection is left for one reason, the first: later ones are what came of it.
func TestAConnectionIsLeftOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHalted(t)
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		h.c.leave(peerError{http2.ErrCodeFlowControl, "the first"})
		said := string(h.c.control)
		h.c.leave(peerError{http2.ErrCodeProtocol, "the second"})
		if h.c.leaving.Error() != (peerError{http2.ErrCodeFlowControl, "the first"}).Error() || string(h.c.control) != said {
			t.Errorf("it is left because of %v", h.c.leaving)
		}
	})
}
