package worker

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
)

// toldLimits are the records of push.events so far that tell how limits stand.
func (n *night) toldLimits() (told []*events.Event) {
	n.t.Helper()
	n.eachEvent(func(e *events.Event, record string) {
		if e.Limits != nil {
			told = append(told, e)
		}
		if strings.Contains(record, "secret") {
			n.t.Errorf("a record names a user: %s", record)
		}
	})
	return told
}

// A worker tells how full the buckets of senders are and how often they put something off,
// each ten seconds in which they were asked, and what is left when it ends; and the users
// that were limited, without a name.
func TestAWorkerTellsItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Limits.Senders = []configs.SenderRule{{Name: "hourly", Algorithm: "token_bucket", Max: 60, Window: time.Hour, Burst: 4, Wait: time.Hour}}
		n, _ := stateNight(t, c, fmt.Sprintf("%064x", "secret"))
		defer n.close()
		stop := n.worker()
		send := func(sender string, count int) {
			for i := range count {
				n.produce(fmt.Sprint(sender, i), "secret-user", map[string]any{"sender_id": sender})
			}
		}
		time.Sleep(30 * time.Second)
		if told := n.toldLimits(); len(told) != 0 {
			t.Errorf("told %d times of nothing", len(told))
		}
		send("orders", 6)
		send("ads", 1)
		time.Sleep(time.Minute)
		sums := map[string]events.SenderLimit{}
		var users events.Sketch
		add := func(skip int) {
			for _, e := range n.toldLimits()[skip:] {
				if d := e.At.Sub(e.From); d < 9*time.Second && skip == 0 || d > 11*time.Second {
					t.Errorf("told for %v", d)
				}
				for _, u := range e.Limits.Users {
					if u.Rule != "hourly" {
						t.Errorf("users of the rule %q", u.Rule)
					}
					users.Merge(u.Sketch)
				}
				for _, s := range e.Limits.Senders {
					s.Limited += sums[s.Sender].Limited
					sums[s.Sender] = s
				}
			}
		}
		add(0)
		if s := sums["orders"]; len(sums) != 2 || s.Rule != "hourly" || s.Limit != 60 || s.Window != 3600 || s.Fills != 240 || s.Share < 1.45 || s.Share > 1.5 || s.Now > s.Share || s.Now < 1.4 || s.Limited != 2 {
			t.Errorf("orders: %+v of %d", s, len(sums))
		}
		if s := sums["ads"]; s.Share != 0.25 || s.Limited != 0 {
			t.Errorf("ads: %+v", s)
		}

		if n := users.Estimate(); n != 1 {
			t.Errorf("%d users were limited, want 1", n)
		}

		// It ends within the ten seconds.
		before := len(n.toldLimits())
		send("last", 1)
		time.Sleep(2 * time.Second)
		stop()
		if add(before); sums["last"].Share != 0.25 {
			t.Errorf("at its end: %+v", sums)
		}
	})
}
