package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
)

// at is the state of a worker with one route.
func at(worker string, r events.RouteState) events.State {
	r.Provider, r.App = "fcm", "shop"
	return events.State{Worker: worker, Release: "1.2.0", Started: time.Now().Add(-time.Hour), Routes: []events.RouteState{r}}
}

// tellState writes a state as the worker of a collector does.
func (f *fleet) tellState(c *events.Collector, s events.State, when time.Time) {
	f.t.Helper()
	f.append(kafka.EventsTopic, kafka.Record{Value: c.State(s, when)})
}

// Two workers are one table: the sum of what they take, the worst of their gates, and
// the answers of both.
func TestProvidersLs(t *testing.T) {
	f := startFleet(t, true)
	a, b, gone, ended := events.New("a", time.Now()), events.New("b", time.Now()), events.New("gone", time.Now()), events.New("ended", time.Now())
	now := time.Now()
	until := now.Add(time.Minute).Truncate(time.Second)
	f.tellState(gone, at("w3", events.RouteState{Gate: "halted", Share: 1000}), now.Add(-6*time.Second))
	f.tellState(a, at("w1", events.RouteState{Gate: "halted", Share: 1000}), now.Add(-time.Second)) // an older one
	f.tellState(a, at("w1", events.RouteState{Gate: "open", RateName: "fcm/shop-1", Rate: 8000, Base: 10_000, Share: 3000, Connections: 20, Streams: 2000, InFlight: 70,
		Answers: []events.AnswerState{{Class: "delivered", N: 900}, {Class: "gone", Reason: "UNREGISTERED", N: 50}}}), now)
	f.tellState(b, at("w2", events.RouteState{Gate: "paused", Until: until, Word: "UNAVAILABLE", Credential: "k1 of push@shop", Remedy: "another key", RateName: "fcm/shop-1", Rate: 8000, Base: 10_000, Share: 1000, Connections: 10, Streams: 1000, InFlight: 7,
		Answers: []events.AnswerState{{Class: "again", Reason: "UNAVAILABLE", N: 50}}}), now)
	f.tellState(ended, at("w4", events.RouteState{Gate: "halted"}), now.Add(-time.Second))
	last := at("w4", events.RouteState{Gate: "halted"})
	last.Last = true
	f.tellState(ended, last, now)

	for _, args := range [][]string{{"providers"}, {"providers", "ls"}} {
		out := f.ok(append(args, "--wait", "0s")...)
		for _, want := range []string{"fcm/shop", "paused at 1 of 2 until " + until.UTC().Format("15:04:05") + " UNAVAILABLE", "8000/s of 10000/s", "4000/s", "w1 75 %, w2 25 %",
			"  30  ", "  3000  ", "  77  ", "delivered 90.0 %, gone UNREGISTERED 5.0 %, again UNAVAILABLE 5.0 %", "2 workers", "fcm/shop: the provider refuses key k1 of push@shop: another key"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v prints\n%s\nwant %q", args, out, want)
			}
		}
		if strings.Contains(out, "w3") || strings.Contains(out, "w4") || strings.Contains(out, "halted") {
			t.Errorf("%v knows who is gone\n%s", args, out)
		}
	}
	var v fleetView
	if err := json.Unmarshal([]byte(f.ok("providers", "--wait", "0s", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Workers) != 2 || v.Workers[0].Source != "a" || len(v.Routes) != 1 || v.Routes[0].Gate != "paused" || v.Routes[0].Stopped != 1 || len(v.Routes[0].Workers) != 2 || v.Routes[0].Taken != 4000 {
		t.Errorf("%+v", v)
	}
	// What workers are at is no count and no failure.
	if out := f.ok("events", "tail", "--since", "1h", "--stop"); out != "" {
		t.Errorf("tail prints\n%s", out)
	}
	if out := f.ok("events", "tail", "--since", "1h", "--stop", "--only", "states"); strings.Count(out, "\n") != 6 || !strings.Contains(out, "w2: 0 records open, 0 pushes under way, 1 of 1 routes stopped, 0 stalls") || strings.Count(out, "its last word") != 1 {
		t.Errorf("tail prints\n%s", out)
	}
	if out := f.ok("events", "tail", "--since", "1h", "--stop", "--only", "states", "--json"); strings.Count(out, `"event":"state"`) != 6 || !strings.Contains(out, `"rate_name":"fcm/shop-1"`) {
		t.Errorf("tail prints\n%s", out)
	}
	var stats eventStats
	if f.decode(&stats, "events", "stats"); stats.Total != 0 {
		t.Errorf("stats count states: %+v", stats)
	}
}

// If nobody is heard, it says what may be the reason.
func TestProvidersLsOfNobody(t *testing.T) {
	f := startFleet(t, true)
	nobody := func(want string) {
		t.Helper()
		exit, out, errs := f.run("", "providers", "ls", "--wait", "0s", "-o", "json")
		var v fleetView
		if err := json.Unmarshal([]byte(out), &v); err != nil || exit != exitFailed || len(v.Workers) != 0 || v.Routes == nil || !strings.Contains(errs, want) {
			t.Errorf("exit status %d, %v\n%s%s\nwant %q", exit, err, out, errs, want)
		}
	}
	nobody("no worker has told its state in the last 5 s")
	told(f)
	nobody("workers write to push.events, but tell no state")
	f.config = configFile(t, "kafka: {brokers: ['"+f.kafka.Addrs()[0]+"']}\nevents: {state: false}\n")
	nobody("events.state is false in this configuration")
	if exit, _, errs := f.run("", "providers", "ls", "--wait", "-1s"); exit != exitUsage || !strings.Contains(errs, "--wait") {
		t.Errorf("exit status %d: %s", exit, errs)
	}
	if exit, _, errs := f.run("", "providers", "lss"); exit != exitUsage || !strings.Contains(errs, "lss") {
		t.Errorf("exit status %d: %s", exit, errs)
	}
}

// What a route or a worker is called does not reach the terminal as it is.
func TestProvidersLsIsCleaned(t *testing.T) {
	f := startFleet(t, true)
	s := at("\x1b[2Jw1\u202e", events.RouteState{Gate: "open\r\n", Word: "\u009b31m", RateName: "\x7f", Answers: []events.AnswerState{{Class: "\x1b", Reason: "\u2066", N: 1}}})
	f.tellState(events.New("\x1b[2J", time.Now()), s, time.Now())
	for _, format := range []string{"table", "json"} {
		out := f.ok("providers", "--wait", "0s", "-o", format)
		if strings.ContainsAny(out, "\x1b\r\x7f\u009b\u202e\u2066") || !strings.Contains(out, "w1") {
			t.Errorf("printed %q", out)
		}
	}
}

// --watch hears of a worker that comes while it runs, and goes on until it is
// interrupted.
func TestProvidersLsWatches(t *testing.T) {
	f := startFleet(t, true)
	ctx, interrupt := context.WithTimeout(t.Context(), time.Minute)
	defer interrupt()
	out := &signalled{Writer: io.Discard, text: "came", ends: interrupt}
	app := newApp(strings.NewReader(""), out, io.Discard)
	defer app.close()
	app.environ, app.connectTime = nil, f.patience
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := events.New("late", time.Now())
		w, err := kafka.NewWriter(kafka.Options{Brokers: f.kafka.Addrs()}, kafka.WriterOptions{Topic: kafka.EventsTopic})
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		for ctx.Err() == nil {
			value := c.State(at("came", events.RouteState{Gate: "open"}), time.Now())
			if err := w.Append(ctx, []kafka.Record{{Value: value}}); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	err := app.execute(ctx, []string{"providers", "ls", "--watch", "--wait", "0s", "--config", f.config})
	<-done
	if status := exitStatus(ctx, err); status != exitInterrupted || !strings.Contains(out.seen.String(), "came 0 %") {
		t.Errorf("exit status %d: %v\n%s", status, err, out.seen.String())
	}
}
