//go:build linux

package stress

import (
	"context"
	"errors"
	"testing"

	"github.com/pushfleet/pushfleet/deploy/local/localtest"
)

func TestOptions(t *testing.T) {
	standard := func() Options {
		o := Standard()
		o.Passwords.Worker, o.Passwords.Serve = "pushworker", []string{"pushbench"}
		return o
	}
	if o := standard(); o.Check() != nil {
		t.Errorf("the standard options: %v", o.Check())
	}
	for why, change := range map[string]func(*Options){
		"no sends": func(o *Options) { o.Sends = 0 }, "no time": func(o *Options) { o.Seconds = 0 },
		"one worker": func(o *Options) { o.Workers = 1 }, "no slowdowns": func(o *Options) { o.Slowdowns = 0 },
		"fewer than no records to shed": func(o *Options) { o.Shed = -1 },
		"no quota":                      func(o *Options) { o.Passwords.Quota = 0 },
		"a negative quota":              func(o *Options) { o.Passwords.Quota = -1 },
		"no notifications":              func(o *Options) { o.Passwords.Notifications = 0 },
	} {
		o := standard()
		if change(&o); o.Check() == nil {
			t.Errorf("%s is no mistake", why)
		}
	}
}

// The figures are those of what happened: as many sends as the rate lets through, and slowdowns that took some time.
func TestSharedRateIsMeasured(t *testing.T) {
	localtest.Require(t)
	o := Standard()
	o.Passwords, o.Sends, o.Seconds, o.Slowdowns, o.Shed, o.Progress = nil, 20_000, 1, 3, 0, t.Logf
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sends < 1000 || r.Sends > 25_000 || r.TicketCPU <= 0 || r.Commands <= 0 || r.SlowdownP50 <= 0 || r.SlowdownP99 < r.SlowdownP50 || len(r.Bars) != 4 {
		t.Errorf("%+v", r)
	}
}

// All records are shed, each with a row: what is measured is that, and needs no server.
func TestShedRecordsAreMeasured(t *testing.T) {
	o, r := Options{Shed: 30_001, Progress: t.Logf}, &Result{}
	if err := shed(t.Context(), &o, r); err != nil {
		t.Fatal(err)
	}
	if r.Shed != 40_000 || r.ShedRate <= 0 || r.ShedCPU <= 0 || r.ShedRows < 2 {
		t.Errorf("%+v", r)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := shed(stopped, &o, r); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	localtest.Require(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	o := Standard()
	o.Passwords = nil
	o.Progress = func(string, ...any) { cancel(stop) }
	if _, err := Run(ctx, o); !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
