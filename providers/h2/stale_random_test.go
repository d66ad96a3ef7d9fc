package h2

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// Whenever windows open, and wherever the process stands still: no frame of a
// request is sent after its lease, its expiry or its deadline, and no request
// that is handed back as unsent was sent.
func TestNothingStaleIsWritten(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomLeases(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

// arrivals are what the server received of each request, by its number.
type arrivals struct {
	mu      sync.Mutex
	headers []int
	whole   []bool
	latest  []time.Time // when a part of it arrived
	bodies  []int
}

func randomLeases(t *testing.T, random *rand.Rand) {
	const n = 300
	start := time.Now()
	got := &arrivals{headers: make([]int, n), whole: make([]bool, n), latest: make([]time.Time, n), bodies: make([]int, n)}
	s := newPeer(t)
	s.settings = []http2.Setting{
		{ID: http2.SettingInitialWindowSize, Val: uint32(random.IntN(100))},
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(5 + random.IntN(100))},
	}
	seed := random.Uint64()
	s.script = func(c *peerConn, number int) { got.serve(c, rand.New(rand.NewPCG(seed, uint64(number)))) }
	p := s.pool(Options{Connections: 2, Timeout: 5 * time.Second, Unauthenticated: func(*Answer) bool { return false }})

	rs := make([]*Request, n)
	last := make([]time.Time, n) // when it must no longer be sent
	for i := range rs {
		r := post("/" + strconv.Itoa(i))
		r.Body = bytes.Repeat([]byte("x"), random.IntN(300))
		life := time.Duration(random.IntN(3000)) * time.Millisecond
		last[i] = start.Add(life)
		switch random.IntN(4) {
		case 0:
			r.Expires = last[i]
		case 1:
			r.Deadline = last[i]
		case 2:
			r.Lease = leased(life)
		default:
			last[i] = start.Add(5 * time.Second)
			r.Deadline = last[i]
		}
		rs[i] = r
	}
	l := newLedger(t, n)
	done := func(back []*Request) { // also called by the writer, between encoding and writing
		time.Sleep(time.Duration(len(back[0].Body)) * time.Millisecond)
		l.done(back)
	}
	for from := 0; from < n; from += 30 {
		if _, err := p.Submit(t.Context(), 0, rs[from:from+30], done); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	}
	l.wait()
	synctest.Wait()

	got.mu.Lock()
	defer got.mu.Unlock()
	outcomes := map[Outcome]int{}
	for i, r := range rs {
		outcomes[r.Outcome]++
		// Right before the write, staleness is checked only after a
		// millisecond.
		if late := got.latest[i].Sub(last[i]); !got.latest[i].IsZero() && late > standstill {
			t.Errorf("/%d: something came %v too late; %v, %v", i, late, r.Outcome, r.Err)
		}
		switch {
		case got.headers[i] > 1:
			t.Errorf("/%d came %d times", i, got.headers[i])
		case (r.Outcome == NotAccepted || r.Outcome == ExpiredUnsent) && got.headers[i] > 0:
			t.Errorf("/%d: %v, %v; and it came", i, r.Outcome, r.Err)
		case r.Outcome == Answered && (!got.whole[i] || got.bodies[i] != len(r.Body)):
			t.Errorf("/%d: answered, and %d of %d bytes came", i, got.bodies[i], len(r.Body))
		case r.Outcome == Ambiguous && !errors.Is(r.Err, ErrDeadline) && !errors.Is(r.Err, ErrExpired) && !errors.Is(r.Err, ErrLeaseLapsed):
			t.Errorf("/%d: %v", i, r.Err)
		}
	}
	if st := p.Stats(); st.Dials > 2 || outcomes[Answered] == 0 || outcomes[NotAccepted]+outcomes[ExpiredUnsent] == 0 {
		t.Errorf("%+v, %v", st, outcomes)
	}
}

// serve answers complete requests and opens windows now and then.
func (a *arrivals) serve(c *peerConn, random *rand.Rand) {
	var mu sync.Mutex // guards open and random
	open := map[uint32]int{}
	over := make(chan struct{}) // closed by the reader below
	c.wg.Go(func() {
		for {
			mu.Lock()
			pause := time.Duration(random.IntN(40)) * time.Millisecond
			for id := range open {
				if random.IntN(3) == 0 {
					c.WriteWindowUpdate(id, uint32(1+random.IntN(200)))
				}
			}
			mu.Unlock()
			select {
			case <-over:
				return
			case <-time.After(pause + time.Microsecond):
			}
		}
	})
	defer close(over)
	for f := c.next(); f != nil; f = c.next() {
		id := f.Header().StreamID
		mu.Lock()
		if head, ok := f.(*http2.MetaHeadersFrame); ok {
			open[id], _ = strconv.Atoi(head.PseudoValue("path")[1:])
		}
		i, known := open[id]
		ended := known && a.note(i, f)
		if _, reset := f.(*http2.RSTStreamFrame); reset || ended {
			delete(open, id)
		}
		if ended {
			c.answer(id)
		}
		mu.Unlock()
	}
}

// note records a frame of a request, and reports whether it is the last one.
func (a *arrivals) note(i int, f http2.Frame) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := false
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		a.headers[i]++
		ended = f.StreamEnded()
	case *http2.DataFrame:
		a.bodies[i] += len(f.Data())
		ended = f.StreamEnded()
	default:
		return false
	}
	a.latest[i], a.whole[i] = time.Now(), a.whole[i] || ended
	return ended
}
