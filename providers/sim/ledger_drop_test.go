package sim

import (
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// A client that takes back its wish for an answer gets none, whatever the
// answer waits for: it counts as dropped, once, and makes room for one stream.
func TestResetDropsTheAnswer(t *testing.T) {
	for why, tt := range map[string]struct {
		options  Options
		settings []http2.Setting
		order    *Command
		dropped  int
	}{
		"due soon":          {options: Options{Faults: RouteSet{APNS: Faults{Latency: 3 * time.Second}}}, dropped: 1},
		"due late":          {options: Options{Faults: RouteSet{APNS: Faults{Latency: time.Hour}}}, dropped: 1},
		"without a window":  {settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, dropped: 1},
		"hanging":           {order: &Command{Do: "hang", Provider: "apns"}, dropped: 1},
		"mute from then on": {order: &Command{Do: "mute", Provider: "apns", Times: 1}, dropped: 1},
		"mute before":       {order: &Command{Do: "mute"}, dropped: 1},
		"answered long ago": {dropped: 0},
	} {
		t.Run(why, func(t *testing.T) {
			tt.options.MaxConcurrentStreams = 1
			var seen []Arrived
			tt.options.Watch = func(a *Arrival) { seen = append(seen, a.What) } // by the reader only
			w := dialWire(t, tt.options, tt.settings...)
			if tt.order != nil {
				w.Pong() // or there is no connection yet
				w.order(*tt.order)
			}
			first := w.ID
			if tt.order != nil { // of which only a good push is the occasion
				stand := newStand(t, nil)
				stand.clock = time.Now()
				w.request(stand.push())
			} else {
				w.Push(`{"pf_id":"n1"}`)
			}
			if tt.dropped == 0 {
				w.Flush()
				w.Until(wiretest.Ended(first))
			} else {
				w.Pong()
			}
			for range 2 { // the second says nothing new
				w.Must(w.WriteRSTStream(first, http2.ErrCodeCancel))
			}
			w.Pong()
			e, _ := w.server.Ledger().Entry("n1", DeviceHash(APNS, goodToken))
			if e.Dropped != tt.dropped || w.server.Ledger().Totals().Dropped != uint64(tt.dropped) {
				t.Errorf("got %+v, want %d dropped", e, tt.dropped)
			}
			if got, want := len(seen), 1+tt.dropped; tt.order == nil && got != want {
				t.Errorf("got %v, want %d arrivals", seen, want)
			}
			// There is room for one, and no more.
			w.Open()
			over := w.Open()
			w.Flush()
			if f := w.Until(wiretest.Of[*http2.RSTStreamFrame]).(*http2.RSTStreamFrame); f.StreamID != over || f.ErrCode != http2.ErrCodeRefusedStream {
				t.Errorf("got %v, want stream %d refused", f, over)
			}
		})
	}
}

// A connection that was killed is dead: of what has been read with the last
// request nothing more is processed.
func TestNothingIsProcessedAfterDeath(t *testing.T) {
	// An answer that is due at once may get out before the reset.
	w := dialWire(t, Options{Faults: RouteSet{APNS: Faults{Latency: time.Hour}}})
	w.order(Command{Do: "kill", Provider: "apns", Times: 1})
	stand := newStand(t, nil)
	stand.clock = time.Now()
	for range 20 {
		w.request(stand.push())
	}
	_, _ = w.Conn.Write(w.Out.Bytes()) // the reset may come in the middle
	_ = w.ends()                       // however it shows
	w.Must(w.server.Close())
	if got := w.server.Ledger().Totals(); got.Received != 1 || got.Dropped != 1 {
		t.Errorf("got %+v, want the one that was the occasion", got)
	}
}

// What was decided before Reset and dropped after it is forgotten like the
// rest.
func TestResetOfTheLedgerWithAnswersInFlight(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, undone := range []bool{false, true} {
			for _, id := range []string{"n1", ""} {
				l := newLedger(full)
				decided := l.observe([]byte(id), []byte("d"), APNSAccepted)
				l.Reset()
				l.drop(decided, undone)
				if got := l.Totals(); got.Received|got.Accepted|got.Dropped|got.Entries != 0 {
					t.Errorf("full %v, undone %v, id %q: got %+v, want nothing", full, undone, id, got)
				}
				// Also when the same comes again.
				l.observe([]byte(id), []byte("d"), APNSAccepted)
				l.drop(decided, undone)
				if got := l.Totals(); got.Received != 1 || got.Accepted != 1 || got.Dropped != 0 {
					t.Errorf("full %v, undone %v, id %q: got %+v, want one accepted", full, undone, id, got)
				}
			}
		}
	}
}

// GOAWAY never says of a decision that stands that it was not made: here of one
// whose answer the client did not want, above one that is taken back.
func TestGoAwayStandsBehindDecisions(t *testing.T) {
	w := dialWire(t, Options{Faults: RouteSet{APNS: Faults{Latency: time.Hour}}})
	w.Push(`{"pf_id":"older"}`)
	unwanted := w.Push(`{"pf_id":"unwanted"}`)
	w.Must(w.WriteRSTStream(unwanted, http2.ErrCodeCancel))
	w.Push(`{"pf_id":"newer"}`)
	w.Pong()
	w.order(Command{Do: "drain", Provider: "apns", Unprocessed: 2})
	if f := w.Until(wiretest.Of[*http2.GoAwayFrame]).(*http2.GoAwayFrame); f.LastStreamID != unwanted {
		t.Errorf("got %v, want the last stream to be %d", f, unwanted)
	}
	for id, want := range map[string]Entry{
		"older":    {Refused: 1, Last: APNSMissingTopic},
		"unwanted": {Refused: 1, Dropped: 1, Last: APNSMissingTopic},
		"newer":    {Dropped: 1},
	} {
		got, _ := w.server.Ledger().Entry(id, DeviceHash(APNS, goodToken))
		if want.Key, want.ID, want.Device = got.Key, got.ID, got.Device; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// What hangs is told to the observer under the key of its entry, like all else.
func TestHangingHasItsKey(t *testing.T) {
	var seen Arrival
	s := newStand(t, func(o *Options) {
		o.Watch = func(a *Arrival) { seen = *a }
		o.Faults.APNS.Chances = []Chance{{1, Act{Do: DoHang}}}
	})
	s.do(s.push())
	e, ok := s.policy.ledger.Entry("n1", DeviceHash(APNS, goodToken))
	if !ok || seen.Key != e.Key || seen.Reply != NoReply {
		t.Errorf("got %+v, want the key of %+v", seen, e)
	}
}
