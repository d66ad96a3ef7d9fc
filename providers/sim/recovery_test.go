package sim

import (
	"testing"
	"time"
)

// slowly is a provider that is whole nine seconds after it is back.
var slowly = Recovery{Provider: FCM, Down: 30 * time.Second, Full: 1000, Start: 0.1, Growth: 0.1, Falls: 2}

// second asks evenly for so many in a second from now on, and returns how many there was
// room for.
func (r *recovery) second(now *time.Time, n int) (taken int) {
	for range n {
		if !r.over(&slowly, *now) {
			taken++
		}
		*now = now.Add(time.Second / time.Duration(n))
	}
	return taken
}

func TestAProviderComesBackSlowly(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var r recovery
	for _, step := range []struct {
		why         string
		after       time.Duration
		ask         int
		least, most int
		falls       int
	}{
		{"it is down when the rule is new", 0, 500, 0, 0, 0},
		{"and to the end of its time", 27 * time.Second, 500, 0, 0, 0},
		{"what it begins with, and no more", 1001 * time.Millisecond, 300, 140, 155, 0},
		{"it grows", 0, 300, 240, 255, 0},
		{"and is pushed over: 1,200 where there is room for 300", 0, 1200, 100, 260, 1},
		{"then it is down for as long again", 20 * time.Second, 500, 0, 0, 1},
		{"nothing makes it fall that comes while it is down", 5 * time.Second, 5000, 0, 0, 1},
		{"whole at last", 15 * time.Second, 1000, 990, 1000, 1},
		{"when it is whole, it takes what it takes", 0, 1500, 990, 1010, 1},
		{"and falls over by twice of it", 0, 2600, 400, 1010, 2},
	} {
		now = now.Add(step.after)
		if taken := r.second(&now, step.ask); taken < step.least || taken > step.most || r.falls != step.falls {
			t.Errorf("%s: %d of %d taken, %d falls; want %d to %d, and %d", step.why, taken, step.ask, r.falls, step.least, step.most, step.falls)
		}
	}
}

// The rule is for the one provider, whose word for it is 503.
func TestRecoveryIsOfOneProvider(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Rules.Recovery = slowly })
	var f [OAuth]choice
	for _, p := range []Provider{APNS, FCM} {
		f[p] = s.policy.choose(&push{provider: p, req: &Request{now: s.clock}}, NoReply, "")
	}
	if f[APNS].reply != NoReply || f[FCM].reply != FCMUnavailable || f[FCM].by != byRule {
		t.Errorf("apns %v, fcm %v by %q", f[APNS].reply, f[FCM].reply, f[FCM].by)
	}
}

func TestRecoveryIsChecked(t *testing.T) {
	for why, change := range map[string]func(*Recovery){
		"of nobody": func(r *Recovery) { r.Provider = Nobody }, "of the token server": func(r *Recovery) { r.Provider = OAuth },
		"never down": func(r *Recovery) { r.Down = 0 }, "no room": func(r *Recovery) { r.Full = 0 },
		"it begins with nothing": func(r *Recovery) { r.Start = 0 }, "with more than all": func(r *Recovery) { r.Start = 1.1 },
		"it shrinks": func(r *Recovery) { r.Growth = -1 }, "it falls by what it takes": func(r *Recovery) { r.Falls = 0.9 },
	} {
		r := slowly
		change(&r)
		if (&Rules{Recovery: r}).Validate() == nil {
			t.Errorf("%s is no mistake", why)
		}
	}
	for _, r := range []Recovery{slowly, {}} {
		if err := (&Rules{Recovery: r}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

// An order by JSON says the same.
func TestRecoveryByOrder(t *testing.T) {
	o := RuleOrder{Recovery: &RecoveryOrder{Provider: "fcm", Down: Interval(30 * time.Second), Full: 1000, Start: 0.1, Growth: 0.1, Falls: 2}}
	if got := o.rules().Recovery; got != slowly {
		t.Errorf("%+v", got)
	}
	if r := (&RuleOrder{Recovery: &RecoveryOrder{Provider: "nobody", Full: 10}}).rules(); r.Validate() == nil {
		t.Error("a provider that there is not is no mistake")
	}
}
