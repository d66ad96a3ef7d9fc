package gates_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// A view says in words what the gate is at, until when, and the last bad word.
func TestAViewOfAGate(t *testing.T) {
	g := newGateway(t, gateOptions())
	want := func(c gates.Condition, until time.Time, word string) {
		t.Helper()
		if v := g.gate.View(g.now); v.Condition != c || !v.Until.Equal(until) || v.Word != word {
			t.Errorf("after %v: %s until %v, %q, want %s until %v, %q", g.now.Sub(startTime), v.Condition, v.Until, v.Word, c, until, word)
		}
	}
	bad := broken
	bad.Reason = "UNAVAILABLE"
	want(gates.Open, time.Time{}, "")
	g.send(1, bad)
	want(gates.Open, time.Time{}, "UNAVAILABLE")
	g.now = g.now.Add(time.Minute)
	want(gates.Open, time.Time{}, "")

	asked := bad
	asked.Pause, asked.After, asked.Reason = true, 10*time.Second, "QUOTA_EXCEEDED"
	g.send(1, asked)
	want(gates.Paused, g.gate.Until(g.now), "QUOTA_EXCEEDED")
	g.now = g.gate.Until(g.now)
	want(gates.Probing, time.Time{}, "QUOTA_EXCEEDED") // nobody has asked for a probe yet
	g.admit(1)
	want(gates.Probing, time.Time{}, "QUOTA_EXCEEDED")

	g = newGateway(t, gateOptions())
	g.send(1, bad)
	g.now = g.now.Add(time.Hour)
	g.gate.Hear(g.now, gates.Pause{Route: fcmShop, Reason: gates.PauseAsked, Left: 10 * time.Second})
	want(gates.Paused, g.gate.Until(g.now), "") // what was said an hour ago did not lead to this

	g = newGateway(t, gateOptions())
	halt := push.Result{Class: push.Again, Scope: push.ScopeRoute, Halt: true, Reason: "InvalidProviderToken"}
	g.send(1, halt)
	want(gates.Halted, g.gate.Until(g.now), "InvalidProviderToken")
	if v := g.gate.View(g.now); v.Admitted != 1 {
		t.Errorf("%d admitted, want 1", v.Admitted)
	}
}

// A view counts the answers of the last minute by class and reason, and not what was
// not sent.
func TestAViewCountsAnswers(t *testing.T) {
	g := newGateway(t, gateOptions())
	word := func(r push.Result, reason string) push.Result {
		r.Reason = reason
		return r
	}
	want := func(all ...gates.Answered) {
		t.Helper()
		if got := g.gate.View(g.now).Answers; !slices.Equal(got, all) {
			t.Errorf("after %v: %+v, want %+v", g.now.Sub(startTime), got, all)
		}
	}
	want()
	ds := g.admit(5)
	for i, r := range []push.Result{good, word(gone, "Unregistered"), good, {}, {Class: push.Refused, Expired: true}} {
		ds[i].Result = r
	}
	returned(g.now, ds)
	want(gates.Answered{Class: push.Delivered, N: 2}, gates.Answered{Class: push.Gone, Reason: "Unregistered", N: 1})
	g.now = g.now.Add(35 * time.Second)
	g.send(1, word(gone, "Unregistered"))
	want(gates.Answered{Class: push.Delivered, N: 2}, gates.Answered{Class: push.Gone, Reason: "Unregistered", N: 2})
	g.now = g.now.Add(25 * time.Second)
	want(gates.Answered{Class: push.Gone, Reason: "Unregistered", N: 1})
	g.now = g.now.Add(-time.Hour) // a clock that is set back forgets nothing
	want(gates.Answered{Class: push.Gone, Reason: "Unregistered", N: 1})
	g.now = g.now.Add(3 * time.Hour)
	want()
}

// However many words a provider has, a view tells a few apart, and counts all.
func TestAViewIsBounded(t *testing.T) {
	g := newGateway(t, gateOptions())
	for i := range 1000 {
		r := refused
		r.Reason = fmt.Sprintf("Reason%d", i)
		g.send(1, r)
	}
	g.send(7, good)
	n, others := int64(0), int64(0)
	all := g.gate.View(g.now).Answers
	for _, a := range all {
		n += a.N
		if a.Reason == gates.OtherReason {
			others += a.N
		}
	}
	if n != 1007 || others != 1007-16 || len(all) != 18 {
		t.Errorf("%d answers of %d kinds, %d of them other: %s", n, len(all), others, strings.TrimSpace(fmt.Sprint(all)))
	}
}
