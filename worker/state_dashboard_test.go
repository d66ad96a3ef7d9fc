package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// What a real worker tells of itself is what the dashboard shows, field by field, in
// whatever order the records come: while it runs, and when it has ended in order.
func TestDashboardShowsAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		n, route := stateNight(t, c, fmt.Sprintf("%064x", "secret"))
		defer n.close()
		n.options.Version = "1.2.0"
		n.options.Wrap = func(o pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
			o.Routes = map[push.Route]pipeline.Provider{route: calls.NewCaller(1, func(context.Context, *pipeline.Delivery) push.Result {
				return push.Result{Class: push.Again, Scope: push.ScopeRoute, Pause: true, After: 10 * time.Minute, Reason: "TooManyRequests"}
			})}
			return o
		}
		stop := n.worker()
		time.Sleep(10 * time.Second)
		n.produce("n1", "secret-user", nil)
		time.Sleep(2500 * time.Millisecond)
		show := func() (*dashboard.Snapshot, *events.State) {
			t.Helper()
			told, _ := n.states()
			f := dashboard.NewFeed()
			for p := range int32(2) {
				f.Positions([]dashboard.Position{{Lane: "transactional", Kind: dashboard.TopicMain, Topic: "push.transactional", Partition: p}}, told[0].At)
			}
			newest := told[len(told)-1].State
			slices.Reverse(told)
			for _, e := range told {
				f.Add(e, e.At)
			}
			return f.Snapshot(time.Now(), dashboard.Kind{}, 100), newest
		}
		s, st := show()
		if len(s.Workers) != 1 || len(s.Routes) != 1 || len(s.Lanes) != 1 || len(s.Gone) != 0 {
			t.Fatalf("workers %+v, routes %+v, lanes %+v, gone %+v", s.Workers, s.Routes, s.Lanes, s.Gone)
		}
		w := s.Workers[0]
		if w.Worker != st.Worker || w.Release != "1.2.0" || !w.Started.Equal(st.Started) || w.Partitions != 2 || w.Memory != st.Memory ||
			w.MemoryBound != st.MemoryBound || w.RepeatBound != st.RepeatBound || w.Omitted != 0 {
			t.Errorf("worker %+v of %+v", w, st)
		}
		r, of := s.Routes[0], st.Routes[0]
		if r.Provider != "apns" || r.App != "shop" || r.Environment != push.Production || r.Lamp != dashboard.LampPaused || r.At != 1 || r.Workers != 1 || !r.Until.Equal(of.Until) ||
			r.Word != "TooManyRequests" || r.RateName != of.RateName || r.Rate != of.Rate || r.Base != of.Base || r.Connections != of.Connections || r.Streams != of.Streams ||
			r.InFlight != of.InFlight || !slices.Contains(r.Answers, dashboard.Answer{Class: "again", Reason: "TooManyRequests", N: 1}) {
			t.Errorf("route %+v of %+v", r, of)
		}
		open, pushes := int64(0), int64(0)
		for _, l := range st.Lanes {
			pushes += l.Pushes
			if l.Topic == "push.transactional" {
				open += l.Open
			}
		}
		if l := s.Lanes[0]; l.Lane != "transactional" || l.InProgress != open || l.Pushes != pushes {
			t.Errorf("lane %+v of %+v", l, st.Lanes)
		}
		if len(s.Stalls) != len(st.Stalls) {
			t.Errorf("stalls %+v of %+v", s.Stalls, st.Stalls)
		}
		for i := range s.Stalls {
			if a, b := s.Stalls[i], st.Stalls[i]; a.Worker != st.Worker || a.Reason != b.Reason || a.Lane != b.Lane || a.Topic != b.Topic || a.Route != b.Route || !a.Since.Equal(b.Since) {
				t.Errorf("stall %+v of %+v", a, b)
			}
		}
		stop()
		time.Sleep(time.Second)
		if s, _ = show(); len(s.Workers) != 0 || len(s.Gone) != 1 || !s.Gone[0].Last {
			t.Errorf("after its end: workers %+v, gone %+v", s.Workers, s.Gone)
		}
	})
}
