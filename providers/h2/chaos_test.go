package h2

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// Servers refuse, reset, go away, cut and change their limits at random. Each
// request ends once, and no request that a server has processed is called not
// accepted, or is sent again.
func TestRandomServersLoseNothing(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomServers(t, seed) })
		})
	}
}

func randomServers(t *testing.T, seed uint64) {
	s := newPeer(t)
	var mu sync.Mutex
	acted := map[string]int{}
	s.script = func(c *peerConn, n int) {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		paths := map[uint32]string{}
		var held []uint32
		for {
			switch f := c.next().(type) {
			case nil:
				return
			case *http2.MetaHeadersFrame:
				paths[f.StreamID] = f.PseudoValue("path")
				continue
			case *http2.DataFrame:
				if !f.StreamEnded() {
					continue
				}
				held = append(held, f.StreamID)
			default:
				continue
			}
			act := func(id uint32) {
				mu.Lock()
				acted[paths[id]]++
				mu.Unlock()
			}
			if random.IntN(3) == 0 {
				time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
			}
			for _, id := range held {
				switch random.IntN(40) {
				case 0:
					c.WriteRSTStream(id, http2.ErrCodeRefusedStream)
				case 1:
					act(id)
					c.WriteRSTStream(id, http2.ErrCodeInternal)
				case 2:
					act(id)
					c.headers(id, false, ":status", "200")
					c.WriteRSTStream(id, http2.ErrCodeCancel)
				case 3:
					c.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(5 + random.IntN(20))},
						http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(random.IntN(5000))},
						http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(20 + random.IntN(100_000))})
					act(id)
					c.answer(id)
				case 4:
					if random.IntN(4) == 0 {
						c.WriteGoAway(id-2, http2.ErrCodeNo, nil) // this request and later ones were not processed
						c.out.flush()
						time.Sleep(time.Millisecond)
						return
					}
					c.answer(id)
					act(id)
				case 5:
					act(id)
					switch random.IntN(8) {
					case 0: // without an answer: it keeps its stream
					case 1:
						c.out.flush()
						return
					default:
						c.answer(id)
					}
				default:
					act(id)
					c.answer(id)
				}
			}
			held = held[:0]
		}
	}
	p := s.pool(Options{Connections: 4, StreamsPerConnection: 30, Timeout: 20 * time.Second, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond})
	rs := make([]*Request, 1500)
	for i := range rs {
		rs[i] = post(fmt.Sprintf("/r/%d", i))
	}
	l := newLedger(t, len(rs))
	for start := 0; start < len(rs); start += 100 {
		if _, err := p.Submit(t.Context(), 0, rs[start:start+100], l.done); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(5 * time.Minute)
	l.wait()
	mu.Lock()
	defer mu.Unlock()
	count := map[Outcome]int{}
	for _, r := range rs {
		count[r.Outcome]++
		switch n := acted[string(r.Path)]; {
		case n > 1:
			t.Errorf("%s: acted on %d times", r.Path, n)
		case n == 1 && r.Outcome == NotAccepted:
			t.Errorf("%s: acted on, and called not accepted: %v", r.Path, r.Err)
		case n == 0 && r.Outcome == Answered:
			t.Errorf("%s: answered by nobody", r.Path)
		}
	}
	if count[Answered] < len(rs)*3/4 || count[Unfinished] > 0 || count[Ambiguous] == 0 {
		t.Errorf("outcomes: %v", count)
	}
	if st := p.Stats(); st.InFlight != 0 || st.Waiting != 0 {
		t.Errorf("left over: %+v", st)
	}
}
