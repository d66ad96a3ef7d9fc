package gates_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

func gateOptions() gates.Options {
	o := gates.DefaultOptions()
	o.Jitter = func(time.Duration) time.Duration { return 0 }
	o.LongestPause = 5 * time.Minute
	o.FirstProbes = 1 // rounds of 1, 2, 4 …: one probe more or less is seen
	return o
}

// gateway is the gate of one route, with its clock and the pauses that it told.
type gateway struct {
	t     testing.TB
	gates *gates.Gates
	gate  *gates.Gate
	now   time.Time
	log   bytes.Buffer
	reg   *prometheus.Registry
}

func newGateway(t testing.TB, o gates.Options) *gateway {
	t.Helper()
	g := &gateway{t: t, now: startTime, reg: prometheus.NewRegistry()}
	gates, err := gates.New([]push.Route{fcmShop, apnsShop}, o, gates.NewMetrics(g.reg), slog.New(slog.NewTextHandler(&g.log, nil)), g.now)
	if err != nil {
		t.Fatal(err)
	}
	g.gates, g.gate = gates, gates.Of(fcmShop)
	return g
}

func (g *gateway) pass(d time.Duration) { g.now = g.now.Add(d) }

// sending is one send, as its owner keeps it.
type sending struct {
	ticket gates.Ticket
	Result push.Result
}

func sendings(n int) []*sending {
	ds := make([]*sending, n)
	for i := range ds {
		ds[i] = new(sending)
	}
	return ds
}

// admit asks for ds and gives tickets to those that are admitted.
func admit(g *gates.Gate, now time.Time, ds []*sending) (n int, again time.Time) {
	ticket, n, again, _ := g.Admit(now, gates.Free, false, len(ds))
	for _, d := range ds[:n] {
		d.ticket = ticket
	}
	return n, again
}

func returned(now time.Time, ds []*sending) {
	answers := make([]gates.Answer, len(ds))
	for i, d := range ds {
		answers[i] = gates.Answer{Ticket: d.ticket, Result: &d.Result}
	}
	gates.Return(now, answers)
}

// admit asks for n and returns those that were admitted.
func (g *gateway) admit(n int) []*sending {
	ds := sendings(n)
	k, again := admit(g.gate, g.now, ds)
	if k < n && !again.After(g.now) {
		g.t.Fatalf("got %d of %d admitted and a next try at %v, want it later than %v", k, n, again, g.now)
	}
	return ds[:k]
}

func (g *gateway) answer(ds []*sending, r push.Result) {
	for _, d := range ds {
		d.Result = r
	}
	returned(g.now, ds)
}

// send sends n, all of which must be admitted, and answers them.
func (g *gateway) send(n int, r push.Result) {
	g.t.Helper()
	ds := g.admit(n)
	if len(ds) != n {
		g.t.Fatalf("at %v: got %d of %d admitted", g.now.Sub(startTime), len(ds), n)
	}
	g.answer(ds, r)
}

func (g *gateway) wantUntil(d time.Duration) {
	g.t.Helper()
	want := g.now.Add(d)
	if d == 0 {
		want = time.Time{}
	}
	if got := g.gate.Until(g.now); !got.Equal(want) {
		g.t.Fatalf("at %v: got a pause until %v, want %v", g.now.Sub(startTime), got.Sub(startTime), want.Sub(startTime))
	}
	if closed := g.gate.Closed(g.now); closed != (d > 0) {
		g.t.Fatalf("at %v: got Closed %v, Until %v", g.now.Sub(startTime), closed, d)
	}
}

func TestGateCloses(t *testing.T) {
	type group struct {
		n int
		r push.Result
	}
	for _, row := range []struct {
		why    string
		groups []group
		until  time.Duration // 0 = stays open
	}{
		{"all is well", []group{{1000, good}}, 0},
		{"a message at fault says nothing about the route", []group{{100, refused}}, 0},
		{"nor does a dead token", []group{{100, gone}}, 0},
		{"nor a device that has had too much", []group{{100, tooMany}}, 0},
		{"nor Apple's key at Google: Android's devices go on", []group{{100, appleKey}}, 0},
		{"nobody knows whether it was sent", []group{{20, vague}}, time.Second},
		{"one bad answer is not many", []group{{1, broken}}, 0},
		{"19 answers are too few to judge", []group{{19, broken}}, 0},
		{"20 are enough", []group{{20, broken}}, time.Second},
		{"half is not more than half", []group{{50, good}, {50, broken}}, 0},
		{"more than half", []group{{50, good}, {51, broken}}, time.Second},
		{"30 % of many", []group{{7000, good}, {3000, broken}}, 0},
		{"cannot connect", []group{{20, away}}, time.Second},
		{"never answers", []group{{20, timedOut}}, time.Second},
		{"a single Retry-After, however well the rest goes", []group{{1000, good}, {1, askedFor(37 * time.Second)}}, 37 * time.Second},
		{"the longest of several", []group{{1, askedFor(20 * time.Second)}, {1, askedFor(50 * time.Second)}, {1, askedFor(30 * time.Second)}}, 50 * time.Second},
		{"refused credentials", []group{{1, badKey}}, 30 * time.Second},
		{"given back unsent is no answer", []group{{100, unsent}, {100, expired}, {100, unfit}}, 0},
		{"what our own code refuses hides no bad answers", []group{{1000, unfit}, {20, broken}}, time.Second},
	} {
		g := newGateway(t, gateOptions())
		var sent [][]*sending
		for _, gr := range row.groups {
			sent = append(sent, g.admit(gr.n))
		}
		for i, gr := range row.groups {
			if len(sent[i]) != gr.n {
				t.Fatalf("%s: got %d of %d admitted by an open gate", row.why, len(sent[i]), gr.n)
			}
			g.answer(sent[i], gr.r)
		}
		want := time.Time{}
		if row.until > 0 {
			want = g.now.Add(row.until)
		}
		if got := g.gate.Until(g.now); !got.Equal(want) {
			t.Errorf("%s: got a pause until %v, want %v", row.why, got, want)
		}
		if other := g.gates.Of(apnsShop); !other.Until(g.now).IsZero() {
			t.Errorf("%s: the other route is stopped too", row.why)
		}
	}
}

func TestGateForgetsOldAnswers(t *testing.T) {
	g := newGateway(t, gateOptions())
	for range 30 { // 15 failures in any 10 s, 45 in total
		g.send(3, broken)
		g.pass(2 * time.Second)
	}
	g.wantUntil(0)
	g.send(1000, good)
	g.pass(11 * time.Second)
	g.send(20, broken) // the successes are too long ago to outweigh these
	g.wantUntil(time.Second)
}

// A clock that goes back and comes again forgets no answer.
func TestGateRemembersWhenTheClockGoesBack(t *testing.T) {
	g := newGateway(t, gateOptions())
	g.send(10, broken)
	g.pass(-time.Minute)
	g.send(5, broken)
	g.pass(time.Minute)
	g.wantUntil(0)
	g.send(5, broken)
	g.wantUntil(time.Second)
}

// The log names the answer that stopped the route, as an operator looks it up.
func TestGateLogsWhatTheProviderSaid(t *testing.T) {
	longer := askedFor(time.Minute)
	longer.Reason = "QUOTA_EXCEEDED"
	atOnce := askedFor(0)
	many := func(n int, r push.Result) []push.Result { return slices.Repeat([]push.Result{r}, n) }
	for _, row := range []struct {
		why     string
		answers []push.Result
		want    string
	}{
		{"the first of those that went badly", slices.Concat(many(5, good), many(1, timedOut), many(20, broken)), "timeout"},
		{"no word of what went well or was the message's own fault", slices.Concat(many(5, refused), many(20, broken)), "INTERNAL"},
		{"the first also where it names no time", slices.Concat(many(1, atOnce), many(20, broken)), "RATE_LIMIT_EXCEEDED"},
		{"who asks for a pause, whatever went badly before", []push.Result{broken, askedFor(time.Second), broken}, "RATE_LIMIT_EXCEEDED"},
		{"who asks for the longest", []push.Result{askedFor(time.Second), longer, askedFor(time.Second)}, "QUOTA_EXCEEDED"},
		{"of two who ask for as long the first", []push.Result{longer, askedFor(time.Minute)}, "QUOTA_EXCEEDED"},
		{"who refuses our credentials, whatever went badly before", []push.Result{broken, badKey, broken}, "PERMISSION_DENIED"},
	} {
		g := newGateway(t, gateOptions())
		ds := g.admit(len(row.answers))
		for i, d := range ds {
			d.Result = row.answers[i]
		}
		returned(g.now, ds)
		if log := g.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, " answer="+row.want+" ") {
			t.Errorf("%s: got this log, want one line with the answer %s:\n%s", row.why, row.want, log)
		}
	}
}

func TestGatePausesDouble(t *testing.T) {
	g := newGateway(t, gateOptions())
	g.send(20, broken)
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		g.wantUntil(pause * time.Second)
		g.pass(pause * time.Second)
		g.send(1, broken)
	}
	// A provider may ask for a longer pause, which is not doubled afterwards.
	g.pass(5 * time.Minute)
	g.send(1, askedFor(time.Hour))
	g.wantUntil(time.Hour)
	g.pass(time.Hour)
	g.send(1, broken)
	g.wantUntil(5 * time.Minute)
}

func TestGateRemembersWhatFlaps(t *testing.T) {
	o := gateOptions()
	o.FullProbes = 1
	g := newGateway(t, o)
	g.send(20, broken)
	for _, pause := range []time.Duration{1, 2, 4, 8} {
		g.wantUntil(pause * time.Second)
		g.pass(pause * time.Second)
		g.send(1, good) // opens the gate
		g.send(20, broken)
	}
	g.pass(16 * time.Second)
	g.send(1, good)
	g.pass(time.Minute)
	g.send(20, broken)
	g.wantUntil(time.Second) // after a minute without failures
}

// Failures from before a pause do not count after it.
func TestGateBeginsAnew(t *testing.T) {
	o := gateOptions()
	o.FullProbes = 1
	g := newGateway(t, o)
	g.send(100, broken)
	g.pass(time.Second)
	g.send(1, good)
	g.send(19, broken)
	g.wantUntil(0)
	g.send(1, broken)
	g.wantUntil(2 * time.Second)
}

// Answers arrive in groups of mixed routes; each counts for its own route.
func TestGatesMixedGroups(t *testing.T) {
	g := newGateway(t, gateOptions())
	apns := sendings(40)
	admit(g.gates.Of(apnsShop), g.now, apns)
	fcm := g.admit(40)
	var mixed []*sending
	for i := range apns {
		apns[i].Result, fcm[i].Result = good, broken
		mixed = append(mixed, apns[i], fcm[i])
	}
	mixed = append(mixed, sendings(1)...) // without a gate
	returned(g.now, mixed)
	g.wantUntil(time.Second)
	if until := g.gates.Of(apnsShop).Until(g.now); !until.IsZero() {
		t.Errorf("the route with good answers is paused until %v", until)
	}
}

// A 429 to a send from before the pause extends the pause like any other. Other
// answers from before say nothing about the probes.
func TestGateAnswersFromBeforeThePause(t *testing.T) {
	g := newGateway(t, gateOptions())
	flying := g.admit(1000)
	g.send(1, askedFor(10*time.Second))
	g.pass(4 * time.Second)
	g.answer(flying[:1], askedFor(20*time.Second))
	g.wantUntil(20 * time.Second)
	g.answer(flying[1:2], askedFor(5*time.Second)) // sooner than the end of the pause
	g.wantUntil(20 * time.Second)
	g.pass(20 * time.Second)

	probe := g.admit(10)
	if len(probe) != 1 {
		t.Fatalf("got %d probes", len(probe))
	}
	g.answer(flying[2:500], broken) // late timeouts
	g.answer(flying[500:800], good)
	g.answer(flying[800:900], badKey)
	if n := len(g.admit(10)); n != 0 {
		t.Fatalf("got %d more probes after answers from before the pause, want 0", n)
	}
	g.wantUntil(0)
	g.answer(probe, good)
	if n := len(g.admit(10)); n != 2 {
		t.Fatalf("got %d probes in the second round", n)
	}
	g.answer(flying[900:], askedFor(time.Minute))
	g.wantUntil(time.Minute)
}

func TestGateTells(t *testing.T) {
	g := newGateway(t, gateOptions())
	want := func(paused, asked, errors int) {
		t.Helper()
		text := fmt.Sprintf(`# HELP push_route_paused 1 while a route is paused or only probed.
# TYPE push_route_paused gauge
push_route_paused{route="apns/shop/production"} 0
push_route_paused{route="fcm/shop"} %d
# HELP push_route_pauses_total Times a route was paused, including failed probes.
# TYPE push_route_pauses_total counter
push_route_pauses_total{reason="errors",route="apns/shop/production"} 0
push_route_pauses_total{reason="errors",route="fcm/shop"} %d
push_route_pauses_total{reason="fleet",route="apns/shop/production"} 0
push_route_pauses_total{reason="fleet",route="fcm/shop"} 0
push_route_pauses_total{reason="halt",route="apns/shop/production"} 0
push_route_pauses_total{reason="halt",route="fcm/shop"} 0
push_route_pauses_total{reason="in_a_row",route="apns/shop/production"} 0
push_route_pauses_total{reason="in_a_row",route="fcm/shop"} 0
push_route_pauses_total{reason="retry_after",route="apns/shop/production"} 0
push_route_pauses_total{reason="retry_after",route="fcm/shop"} %d
push_route_pauses_total{reason="told",route="apns/shop/production"} 0
push_route_pauses_total{reason="told",route="fcm/shop"} 0
`, paused, errors, asked)
		if err := testutil.GatherAndCompare(g.reg, strings.NewReader(text), "push_route_paused", "push_route_pauses_total"); err != nil {
			t.Error(err)
		}
	}
	want(0, 0, 0)
	g.send(20, broken)
	g.pass(time.Second)
	g.send(1, askedFor(time.Minute))
	want(1, 1, 1)
	if since, why, ok := g.gate.Paused(); !ok || !since.Equal(startTime) || why != gates.PauseAsked {
		t.Errorf("got Paused %v, %v, %v", since, why, ok)
	}
	if log := g.log.String(); strings.Count(log, "route paused") != 2 || !strings.Contains(log, "route=fcm/shop") || strings.Contains(log, "secret") {
		t.Errorf("log:\n%s", log)
	}
}

// Whatever the order of answers: nothing is admitted before the last time that
// the provider named, no round admits more probes than it allows, and with good
// answers the gate opens in the end.
func TestGateProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := gateOptions()
		spread := time.Duration(rapid.IntRange(0, 1000).Draw(rt, "jitter"))
		o.Jitter = func(d time.Duration) time.Duration { return d * spread / 1001 }
		g := newGateway(t, o)
		var flying []*sending
		var floor time.Time
		kinds := []push.Result{good, good, good, broken, away, timedOut, refused, tooMany, badKey, unsent, expired, askedFor(time.Second), askedFor(90 * time.Second)}
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "step") {
			case 0:
				g.pass(time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond)
			case 1:
				_, _, paused := g.gate.Paused()
				ds := g.admit(rapid.IntRange(1, 300).Draw(rt, "wanted"))
				if len(ds) > 0 && g.now.Before(floor) {
					rt.Fatalf("got %d admitted %v before the time that the provider named", len(ds), floor.Sub(g.now))
				}
				if paused && len(ds) > o.FullProbes {
					rt.Fatalf("got %d probes at once", len(ds))
				}
				flying = append(flying, ds...)
			default:
				n := rapid.IntRange(0, min(len(flying), 60)).Draw(rt, "answers")
				r := rapid.SampledFrom(kinds).Draw(rt, "kind")
				if n > 0 && r.Pause {
					if until := g.now.Add(r.After); until.After(floor) {
						floor = until
					}
				}
				from := rapid.IntRange(0, len(flying)-n).Draw(rt, "from")
				back := append([]*sending(nil), flying[from:from+n]...)
				flying = append(flying[:from], flying[from+n:]...)
				g.answer(back, r)
			}
		}
		g.answer(flying, good)
		g.pass(2 * time.Minute)
		for range 1000 {
			ds := g.admit(2 * o.FullProbes)
			g.answer(ds, good)
			if len(ds) == 2*o.FullProbes {
				return
			}
			g.pass(time.Second)
		}
		rt.Fatal("the gate never opens again")
	})
}

// Several lanes share a gate: together their dispatchers get no more through
// than one.
func TestGateShared(t *testing.T) {
	g := newGateway(t, gateOptions())
	g.send(20, broken)
	g.pass(time.Second)
	var lanes sync.WaitGroup
	var mu sync.Mutex
	var probes []*sending
	for range 8 {
		lanes.Go(func() {
			ds := sendings(100)
			for range 100 {
				n, _ := admit(g.gate, g.now, ds)
				g.gate.Hold(g.now)
				g.gate.Closed(g.now)
				mu.Lock()
				probes = append(probes, ds[:n]...)
				mu.Unlock()
				ds = ds[n:]
			}
		})
	}
	lanes.Wait()
	if len(probes) != 1 {
		t.Fatalf("got %d probes of one gate, want 1", len(probes))
	}
	g.answer(probes, good)
	if n := len(g.admit(10)); n != 2 {
		t.Fatalf("got %d probes after that", n)
	}
}

func BenchmarkGate(b *testing.B) {
	for _, row := range []struct {
		why string
		bad int // one in so many; 0 = none
	}{{"all good", 0}, {"one in eight bad", 8}} {
		b.Run(row.why, func(b *testing.B) {
			g := newGateway(b, gateOptions())
			results, answers := make([]push.Result, 256), make([]gates.Answer, 256)
			for i := range results {
				results[i] = good
				if row.bad > 0 && i%row.bad == 0 {
					results[i] = broken
				}
				results[i].Conn = uint32(1 + i%20)
			}
			b.ReportAllocs()
			for b.Loop() {
				ticket, n, _, _ := g.gate.Admit(g.now, gates.Free, false, len(answers))
				for i := range answers[:n] {
					answers[i] = gates.Answer{Ticket: ticket, Result: &results[i]}
				}
				gates.Return(g.now, answers[:n])
			}
		})
	}
}
