package stages_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// away is a limiter that counts critical messages and cannot read its store.
type away struct{ err error }

func (a away) DecideWith(context.Context, []*limits.Request, limits.SenderLimits) error { return a.err }
func (away) CountsCritical() bool                                                       { return true }

// A one-time password that its lane lets go without the user's record does not wait to
// be counted: neither where the record could not be read, nor where the store went away
// after that. Its sender's limits and a broken state hold it all the same.
func TestWhatNeedsNoRecordDoesNotWaitToBeCounted(t *testing.T) {
	gone := errors.New("redis is away")
	otp := func(user *push.User) func(*pipeline.Item) {
		return func(it *pipeline.Item) {
			it.Priority, it.Device, it.SenderID = push.Critical, push.Target{Platform: push.FCM, Token: "t"}, "auth"
			it.User, it.Expires = user, push.At(time.Now().Add(time.Hour))
		}
	}
	known, unread := &push.User{}, &push.User{Quarantine: push.RecordUnread}
	ignoring := push.Consent{IgnoreBlocked: true}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		why       string
		ctx       context.Context
		user      *push.User
		consent   push.Consent
		limiter   error
		senders   *decider
		waits     bool // the batch
		verdict   push.Verdict
		uncounted int
	}{
		{"its record could not be read", t.Context(), unread, ignoring, nil, nil, false, push.Undecided, 1},
		{"the store went away then", t.Context(), known, ignoring, gone, nil, false, push.Undecided, 1},
		{"its sender lets it go", t.Context(), known, ignoring, gone, &decider{answer: hourly}, false, push.Undecided, 1},
		{"its sender puts it off", t.Context(), known, ignoring, gone, &decider{answer: func(r *limits.Request) { r.ID = "waits"; hourly(r) }}, false, push.Deferred, 1},
		{"its sender's limits are away, too", t.Context(), known, ignoring, gone, &decider{err: gone}, true, push.Undecided, 0},
		{"a state is broken", t.Context(), known, ignoring, &limits.StateError{Key: "k", Err: gone}, nil, true, push.Undecided, 0},
		{"another lane", t.Context(), known, push.Consent{}, gone, nil, true, push.Undecided, 0},
		{"the worker stops", over, known, ignoring, gone, nil, true, push.Undecided, 0},
	} {
		reg := prometheus.NewRegistry()
		s := &stages.Limits{Limiter: inForce(away{tt.limiter}), Consent: tt.consent, Checks: stages.NewLimitMetrics(reg)}
		if tt.senders != nil {
			s.Senders = func() stages.Senders { return tt.senders }
		}
		b := &pipeline.Batch{Items: []pipeline.Item{toDevices("otp", otp(tt.user), "d")}}
		if tt.limiter != nil {
			b.Items = append(b.Items, toDevices("news", func(it *pipeline.Item) { it.Expires = push.At(time.Now().Add(time.Hour)) }, "d"))
		}
		for i := range b.Items {
			b.Items[i].User = tt.user
		}
		if err := s.Apply(tt.ctx, b); errors.Is(err, gone) != tt.waits {
			t.Errorf("%s: %v", tt.why, err)
		}
		it := &b.Items[0]
		if it.Verdict != tt.verdict || it.Allowed || it.Paid != (tt.senders != nil && !tt.waits) {
			t.Errorf("%s: %v, allowed %t, paid %t", tt.why, it.Verdict, it.Allowed, it.Paid)
		}
		if len(b.Items) > 1 {
			if it := &b.Items[1]; (it.Verdict == push.Deferred) == tt.waits || !tt.waits && it.Reason != push.UserUnavailable {
				t.Errorf("%s: all else is %v %q", tt.why, it.Verdict, it.Reason)
			}
		}
		if got := checks(t, reg, "uncounted"); got != tt.uncounted {
			t.Errorf("%s: %d uncounted, want %d", tt.why, got, tt.uncounted)
		}
		// What goes on has exceeded nothing.
		if got := checks(t, reg, "dropped") + checks(t, reg, "deferred"); (got == 1) != (tt.verdict == push.Deferred) || got > 1 {
			t.Errorf("%s: %d count as over a limit", tt.why, got)
		}
	}
}

// checks adds up the checks of an action.
func checks(t *testing.T, reg *prometheus.Registry, action string) (n int) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "push_rate_limit_checks_total" && m.GetLabel()[0].GetValue() == action { // labels are sorted
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// The limits of one sender answer, those of another cannot: what the one gave or put
// off stands, and is not asked for again when the stage is repeated.
func TestWhatSomeSendersAnswerStands(t *testing.T) {
	gone := errors.New("a server is away")
	s := &stages.Limits{Limiter: inForce(away{gone}), Consent: push.Consent{IgnoreBlocked: true}}
	desk := &half{err: gone}
	s.Senders = func() stages.Senders { return desk }
	var items []pipeline.Item
	for _, id := range []string{"goes", "waits", "away"} {
		items = append(items, toDevices(id, func(it *pipeline.Item) {
			it.Priority, it.Device, it.SenderID = push.Critical, push.Target{Platform: push.FCM, Token: "t"}, "auth"
			it.Expires = push.At(time.Now().Add(time.Hour))
		}, "d"))
	}
	b := &pipeline.Batch{Items: items}
	if err := s.Apply(t.Context(), b); !errors.Is(err, gone) {
		t.Fatalf("%v, want %v", err, gone)
	}
	if desk.err = nil; !b.Items[0].Paid || b.Items[1].Verdict != push.Deferred || b.Items[2].Paid {
		t.Errorf("paid %t, %v, paid %t", b.Items[0].Paid, b.Items[1].Verdict, b.Items[2].Paid)
	}
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if want := []string{"goes", "waits", "away", "away"}; !slices.Equal(desk.asked, want) {
		t.Errorf("asked about %q, want %q", desk.asked, want)
	}
}

// half answers about all but one notification while there is an error.
type half struct {
	asked []string
	err   error
}

func (h *half) Decide(_ context.Context, reqs []*limits.Request) error {
	for _, r := range reqs {
		if r.Paid {
			continue
		}
		h.asked = append(h.asked, r.ID)
		if r.ID != "away" || h.err == nil {
			hourly(r)
		}
	}
	return h.err
}

// asksFirst is a limiter that fails after it has asked the senders' limits.
type asksFirst struct{ away }

func (a asksFirst) DecideWith(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits) error {
	return errors.Join(senders.Decide(ctx, reqs), a.err)
}

// What its sender put off before the store went away stays as it is, and nobody is asked
// about it again; what was not counted before is told once with what is not counted now.
func TestWhatSendersAnsweredBeforeAStoreWentAwayStands(t *testing.T) {
	desk, reg := &half{}, prometheus.NewRegistry()
	s := &stages.Limits{Limiter: inForce(asksFirst{away{errors.New("redis is away")}}), Consent: push.Consent{IgnoreBlocked: true},
		Senders: func() stages.Senders { return desk }, Checks: stages.NewLimitMetrics(reg)}
	otp := func(it *pipeline.Item) {
		it.Priority, it.Device = push.Critical, push.Target{Platform: push.FCM, Token: "t"}
	}
	b := &pipeline.Batch{}
	for _, tt := range []struct {
		id   string
		edit func(*pipeline.Item)
	}{{"asks later", otp}, {"otp", otp}, {"unread", otp}, {"waits", nil}, {"news", nil}} {
		b.Items = append(b.Items, toDevices(tt.id, tt.edit, "d"))
		it := &b.Items[len(b.Items)-1]
		it.SenderID, it.Expires = "auth", push.At(time.Now().Add(24*time.Hour))
	}
	unread := &b.Items[2]
	unread.User, unread.SenderID = &push.User{Quarantine: push.RecordUnread}, ""
	began := time.Now()
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if want := []string{"asks later", "otp", "waits", "news"}; !slices.Equal(desk.asked, want) {
		t.Errorf("senders are asked about %q, want %q", desk.asked, want)
	}
	for i, want := range []struct {
		verdict push.Verdict
		reason  push.Reason
		after   time.Duration // the least; 0 = it goes on
		paid    bool
	}{
		{push.Deferred, push.LimitWaits, time.Hour, false}, {push.Undecided, "", 0, true}, {push.Undecided, "", 0, false},
		{push.Deferred, push.LimitWaits, time.Minute, true}, {push.Deferred, push.UserUnavailable, time.Second, true},
	} {
		it := &b.Items[i]
		if it.Verdict != want.verdict || it.Reason != want.reason || it.Paid != want.paid || (len(it.Deliveries) == 0) != (want.after > 0) {
			t.Errorf("%s: %v %q, paid %t, %d deliveries, want %+v", it.ID, it.Verdict, it.Reason, it.Paid, len(it.Deliveries), want)
		}
		if want.after > 0 && it.NotBefore.Before(began.Add(want.after)) {
			t.Errorf("%s: not before %v, want at least %v later", it.ID, it.NotBefore.Sub(began), want.after)
		}
	}
	if got := checks(t, reg, "uncounted"); got != 2 {
		t.Errorf("%d uncounted, want the one that was read and the one that was not", got)
	}
}
