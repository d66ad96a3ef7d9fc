package exchange

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/providers/h2"
)

// A connection is left after three bad answers in a row over it, one in ten seconds.
func TestAConnectionThatAnswersBadlyIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s suspect
		time.Sleep(leaveEvery)
		for i, step := range []struct {
			why   string
			conn  uint32
			bad   bool
			wait  time.Duration
			leave bool
		}{
			{"all is well", 1, false, 0, false},
			{"the first", 1, true, 0, false},
			{"the second", 1, true, 0, false},
			{"one that went well", 1, false, 0, false},
			{"the first again", 1, true, 0, false},
			{"over another one", 2, true, 0, false},
			{"back over the first: none is in a row", 1, true, 0, false},
			{"its second", 1, true, 0, false},
			{"its third", 1, true, 0, true},
			{"over the next one", 3, true, 0, false},
			{"its second", 3, true, 0, false},
			{"its third: too soon", 3, true, 0, false},
			{"just too soon", 3, true, leaveEvery - 1, false},
			{"late enough", 3, true, 1, true},
			{"the next begins anew, however long after", 3, true, leaveEvery, false},
		} {
			time.Sleep(step.wait)
			if got := s.answered(step.conn, step.bad); got != step.leave {
				t.Errorf("step %d, %s: left %t, want %t", i, step.why, got, step.leave)
			}
		}
	})
}

// A route with little to send has one connection. After three bad answers the next
// request goes over another one, so that a gate hears of two.
func TestBadAnswersInARowComeOverTwoConnections(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, h2.Options{Connections: 1})
	var conns []uint32
	for range 4 {
		ds, _ := deliveries(t, "one")
		all := newBook(t, 1)
		if _, err := r.Lane(0).Submit(t.Context(), ds, all.done); err != nil {
			t.Fatal(err)
		}
		all.wait("its answer")
		conns = append(conns, ds[0].Result.Conn)
	}
	if first, next := conns[0], conns[3]; first == 0 || next == 0 || first == next || !slices.Equal(conns[:3], []uint32{first, first, first}) {
		t.Errorf("sent over the connections %v, want three over one and the fourth over another", conns)
	}
}
