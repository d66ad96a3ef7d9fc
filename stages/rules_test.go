package stages_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/stages"
)

// night is quiet from 22:00 to 07:00 UTC; virtual time begins at 00:00.
var night = []push.QuietHours{{From: 22 * 60, To: 7 * 60}}

func policy() *quiet.Policy {
	return quiet.New(quiet.Options{Default: time.UTC, Drop: map[string]bool{"flash": true}, Promotional: map[string]bool{"promo": true},
		Countries: map[string]quiet.Country{"DE": {Hours: night}}})
}

// In quiet hours a notification waits until they end, unless nobody would want it
// then. The same is judged of one that has waited behind a paused route.
func TestQuietHours(t *testing.T) {
	sleeper := push.User{Preferences: push.Preferences{Quiet: night}}
	for _, tt := range []struct {
		why    string
		user   push.User
		edit   func(*pipeline.Item)
		after  time.Duration // it is midnight, and so much later
		want   push.Verdict
		reason push.Reason
	}{
		{why: "nobody sleeps"},
		{why: "the user sleeps", user: sleeper, want: push.Deferred, reason: push.Quiet},
		{why: "the last moment", user: sleeper, after: 7*time.Hour - 1, want: push.Deferred, reason: push.Quiet},
		{why: "the night is over", user: sleeper, after: 7 * time.Hour},
		{why: "critical", user: sleeper, edit: func(it *pipeline.Item) { it.Priority = push.Critical }},
		{why: "nothing of the type is kept", user: sleeper, edit: func(it *pipeline.Item) { it.Type = "flash" }, want: push.Suppressed, reason: push.QuietDropped},
		{why: "it expires before", user: sleeper, edit: func(it *pipeline.Item) { it.Expires = push.At(time.Now().Add(7*time.Hour - 1)) }, want: push.Suppressed, reason: push.QuietTooLong},
		{why: "it expires then", user: sleeper, edit: func(it *pipeline.Item) { it.Expires = push.At(time.Now().Add(7 * time.Hour)) }, want: push.Suppressed, reason: push.QuietTooLong},
		{why: "it expires right after", user: sleeper, edit: func(it *pipeline.Item) { it.Expires = push.At(time.Now().Add(7*time.Hour + 1)) }, want: push.Deferred, reason: push.Quiet},
		{why: "always quiet", user: push.User{Preferences: push.Preferences{Quiet: make([]push.QuietHours, 1)}}, want: push.Suppressed, reason: push.QuietTooLong},
		{why: "opted out comes first", user: push.User{Preferences: push.Preferences{Quiet: night, OptOutAll: true}}, want: push.Suppressed, reason: push.OptedOutAll},
		{why: "blocked, and critical", user: push.User{Preferences: push.Preferences{Blocked: true}}, edit: func(it *pipeline.Item) { it.Priority = push.Critical },
			want: push.Suppressed, reason: push.Blocked},
		{why: "a promotion in a quiet country", user: push.User{Profile: push.Profile{Country: "DE"}}, edit: func(it *pipeline.Item) { it.Type = "promo" },
			want: push.Deferred, reason: push.Quiet},
		{why: "another zone", user: push.User{Profile: push.Profile{Zone: "Asia/Kathmandu"}, Preferences: push.Preferences{Quiet: night}}, after: 75 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)) + tt.after)
			tt.user.Devices = []push.Device{{App: "shop", Hash: "h", Platform: push.FCM}}
			b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) {
				it.Expires = push.At(time.Now().Add(24 * time.Hour))
				if tt.edit != nil {
					tt.edit(it)
				}
			})}}
			rules := stages.Rules{Quiet: policy()}
			if err := (&stages.Preferences{Users: people{user: tt.user}, Rules: rules.Fixed()}).Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			it := &b.Items[0]
			if it.Verdict != tt.want || it.Reason != tt.reason {
				t.Errorf("%s: got %v %q, want %v %q", tt.why, it.Verdict, it.Reason, tt.want, tt.reason)
			}
			if morning := time.Date(2000, 1, 2, 7, 0, 0, 0, time.UTC); (it.Verdict == push.Deferred) != it.NotBefore.Equal(morning) {
				t.Errorf("%s: got NotBefore %v", tt.why, it.NotBefore)
			}
			d := &pipeline.Delivery{Item: it, Device: pipeline.Device{Hash: "h"}, Route: push.Route{Platform: push.FCM}, Expires: it.Expires}
			if err := (&stages.Recheck{Users: people{user: tt.user}, Newest: &newest{}, Rules: rules.Fixed()}).Recheck(t.Context(), []*pipeline.Delivery{d}); err != nil {
				t.Fatal(err)
			}
			if d.Verdict != tt.want || d.Reason != tt.reason {
				t.Errorf("%s, after its wait: got %v %q, want %v %q", tt.why, d.Verdict, d.Reason, tt.want, tt.reason)
			}
		})
	}
}

// A channel that the user opted out of gets what is critical, and nothing else.
func TestCriticalPassesAChannelOptOut(t *testing.T) {
	u := push.User{Devices: []push.Device{{App: "shop", Hash: "h", Platform: push.FCM}}, Preferences: push.Preferences{Channels: []string{"push"}}}
	for priority, want := range map[push.Priority]push.Verdict{push.High: push.Suppressed, push.Critical: push.Undecided} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) { it.Priority = priority })}}
		for _, s := range []pipeline.Stage{&stages.Preferences{Users: people{user: u}}, &stages.Devices{}} {
			if err := s.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		it := &b.Items[0]
		if it.Verdict != want || want == push.Undecided && (len(it.Deliveries) != 1 || it.Deliveries[0].Verdict != push.Undecided) {
			t.Errorf("%v: got %v %q, %+v", priority, it.Verdict, it.Reason, it.Deliveries)
		}
		d := &pipeline.Delivery{Item: it, Device: pipeline.Device{Hash: "h"}, Route: push.Route{Platform: push.FCM}}
		if err := (&stages.Recheck{Users: people{user: u}, Newest: &newest{}}).Recheck(t.Context(), []*pipeline.Delivery{d}); err != nil || d.Verdict != want {
			t.Errorf("%v, after its wait: got %v %q, %v", priority, d.Verdict, d.Reason, err)
		}
	}
}

// While users' records cannot be read, a lane to which "blocked" does not apply sends
// what is critical and names its device, and puts off all else. Other lanes wait.
func TestALaneThatIgnoresBlockedGoesOn(t *testing.T) {
	away := people{user: push.User{Preferences: push.Preferences{OptOutAll: true}}, err: errors.New("redis is away")}
	ignore := stages.Rules{Consent: push.Consent{IgnoreBlocked: true}, Quiet: policy()}
	named := func(p push.Priority) func(*pipeline.Item) {
		return func(it *pipeline.Item) {
			it.Priority, it.Device, it.Expires = p, push.Target{Platform: push.FCM, Token: "t"}, push.At(time.Now().Add(time.Hour))
		}
	}
	batch := func() *pipeline.Batch {
		return &pipeline.Batch{Items: []pipeline.Item{
			item("a", named(push.Critical)),
			item("b", named(push.High)),
			item("c", func(it *pipeline.Item) { it.Priority, it.Expires = push.Critical, push.At(time.Now().Add(time.Hour)) }),
		}}
	}
	b, caps := batch(), &limiter{err: away.err, critical: true}
	for _, s := range []pipeline.Stage{&stages.Dedupe{Filter: &filter{err: away.err}, Ledger: &ledger{}, ConfirmAll: true},
		&stages.Preferences{Users: away, Rules: ignore.Fixed()}, &stages.Devices{}, &stages.Limits{Limiter: inForce(caps), Consent: ignore.Consent}} {
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatalf("%s: %v", s.Name(), err)
		}
	}
	if it := &b.Items[0]; it.Verdict != push.Undecided || len(it.Deliveries) != 1 || it.Confirmed.IsZero() || len(caps.asked) > 0 {
		t.Errorf("critical to a named device: got %v %q, confirmed %v, limits asked about %q", it.Verdict, it.Reason, it.Confirmed, caps.asked)
	}
	for _, it := range b.Items[1:] {
		if it.Verdict != push.Deferred || it.Reason != push.UserUnavailable || time.Until(it.NotBefore) < 25*time.Second {
			t.Errorf("%s: got %v %q, NotBefore %v", it.ID, it.Verdict, it.Reason, it.NotBefore)
		}
	}
	waited := []*pipeline.Delivery{{Item: &b.Items[0]}, {Item: &b.Items[1]}, {Item: &b.Items[2]}}
	if err := (&stages.Recheck{Users: away, Newest: &newest{}, Rules: ignore.Fixed()}).Recheck(t.Context(), waited); err != nil {
		t.Fatal(err)
	}
	if waited[0].Verdict != push.Undecided || waited[1].Verdict != push.Deferred || waited[2].Reason != push.UserUnavailable {
		t.Errorf("after their wait: got %v, %v, %q", waited[0].Verdict, waited[1].Verdict, waited[2].Reason)
	}

	over, cancel := context.WithCancel(t.Context())
	cancel()
	for why, tt := range map[string]struct {
		ctx   context.Context
		rules stages.Rules
	}{"another lane": {t.Context(), stages.Rules{}}, "the worker stops": {over, ignore}} {
		b := batch()
		if err := (&stages.Preferences{Users: away, Rules: tt.rules.Fixed()}).Apply(tt.ctx, b); !errors.Is(err, away.err) || b.Items[0].Verdict != push.Undecided || b.Items[1].Verdict != push.Undecided {
			t.Errorf("%s: got error %v, verdicts %v, %v", why, err, b.Items[0].Verdict, b.Items[1].Verdict)
		}
		d := &pipeline.Delivery{Item: &b.Items[0]}
		if err := (&stages.Recheck{Users: away, Newest: &newest{}, Rules: tt.rules.Fixed()}).Recheck(tt.ctx, []*pipeline.Delivery{d}); !errors.Is(err, away.err) {
			t.Errorf("%s, after its wait: %v", why, err)
		}
		if err := (&stages.Dedupe{Filter: &filter{err: away.err}, Ledger: &ledger{}, ConfirmAll: tt.rules.Consent.IgnoreBlocked}).Apply(tt.ctx, b); !errors.Is(err, away.err) {
			t.Errorf("%s, the filter: %v", why, err)
		}
	}
}
