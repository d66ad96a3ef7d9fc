package stages_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// decider answers each request by a function, and keeps copies.
type decider struct {
	answer   func(*limits.Request)
	critical bool
	asked    []limits.Request
	err      error
}

func (d *decider) Decide(_ context.Context, reqs []*limits.Request) error {
	if d.err != nil {
		return d.err
	}
	for _, r := range reqs {
		asked := *r
		asked.Devices, asked.Segments = slices.Clone(r.Devices), slices.Clone(r.Segments)
		d.asked = append(d.asked, asked)
		d.answer(r)
	}
	return nil
}

func (d *decider) CountsCritical() bool { return d.critical }

func (d *decider) DecideWith(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits) error {
	if err := d.Decide(ctx, reqs); err != nil {
		return err
	}
	return lastly(ctx, reqs, senders)
}

// toDevices is an item with an open delivery to each of these, and one that was
// decided before.
func toDevices(id string, edit func(*pipeline.Item), hashes ...string) pipeline.Item {
	it := item(id, edit)
	it.User = &push.User{}
	for _, hash := range hashes {
		it.Deliveries = append(it.Deliveries, pipeline.Delivery{Device: pipeline.Device{Hash: hash}, Route: push.Route{Platform: push.FCM}})
	}
	it.Deliveries = append(it.Deliveries, pipeline.Delivery{Device: pipeline.Device{Hash: "gone"}, Verdict: push.Suppressed, Reason: push.TokenGone})
	return it
}

// What the limiter says of a notification and of its devices becomes of them.
func TestWhatLimitsDecide(t *testing.T) {
	allow := func(r *limits.Request) { r.Allowed = true }
	refuse := func(hash string) func(*limits.Request) {
		return func(r *limits.Request) {
			r.Allowed = true
			for i := range r.Devices {
				if r.Devices[i].Hash == limits.DeviceHash(hash) {
					r.Devices[i].Refused, r.Devices[i].Rule = true, "device-a-day"
				}
			}
		}
	}
	const goes = "goes"
	for _, tt := range []struct {
		why     string
		answer  func(*limits.Request)
		verdict push.Verdict
		reason  push.Reason
		detail  string
		allowed bool
		left    []string // of each delivery: goes, or why it does not
	}{
		{"allowed", allow, push.Undecided, "", "", true, []string{goes, goes, "token_gone"}},
		{"one device refused", refuse("b"), push.Undecided, "", "", true, []string{goes, "limited:device-a-day", "token_gone"}},
		{"refused", func(r *limits.Request) { r.Rule = "day" }, push.Suppressed, push.Limited, "day", false, nil},
		{"put off", func(r *limits.Request) { r.Deferred, r.Rule, r.RetryAfter = true, "hour", 20*time.Minute }, push.Deferred, push.LimitWaits, "hour", false, nil},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{toDevices("n", nil, "a", "b")}}
		began := time.Now()
		d := &decider{answer: tt.answer}
		if err := (&stages.Limits{Limiter: inForce(d)}).Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		it := &b.Items[0]
		if it.Verdict != tt.verdict || it.Reason != tt.reason || it.Detail != tt.detail || it.Allowed != tt.allowed {
			t.Errorf("%s: %v %q %q, allowed %t", tt.why, it.Verdict, it.Reason, it.Detail, it.Allowed)
		}
		var left []string
		for i := range it.Deliveries {
			if got := &it.Deliveries[i]; got.Verdict == push.Undecided {
				left = append(left, goes)
			} else {
				left = append(left, string(got.Reason))
			}
		}
		if !slices.Equal(left, tt.left) {
			t.Errorf("%s: deliveries %q, want %q", tt.why, left, tt.left)
		}
		if put := it.Verdict == push.Deferred; put && (it.NotBefore.Before(began.Add(20*time.Minute)) || it.NotBefore.After(time.Now().Add(20*time.Minute))) {
			t.Errorf("%s: until %v, want 20 minutes from now", tt.why, it.NotBefore)
		}
	}
}

// The limiter is told all that rules can be about, and of open deliveries only.
func TestWhatLimitsAreTold(t *testing.T) {
	zone := time.FixedZone("east", 3600)
	first, expires := push.At(time.Now().Add(-time.Minute)), push.At(time.Now().Add(time.Hour))
	full := toDevices("n1", func(it *pipeline.Item) {
		it.UserID, it.Type, it.App, it.Priority, it.FirstSeen, it.Expires = "ada", "news", "shop", push.High, first, expires
	}, "a", "b")
	full.User = &push.User{Limits: []push.PersonalLimit{{Name: "hour", Max: 2}}, Limiter: []byte("state")}
	b := &pipeline.Batch{Items: []pipeline.Item{full,
		toDevices("otp", func(it *pipeline.Item) { it.Priority = push.Critical }, "c"),
		toDevices("n2", func(it *pipeline.Item) { it.UserID = "bob" }, "d")}}
	d := &decider{answer: func(r *limits.Request) { r.Allowed = true }}
	s := &stages.Limits{Limiter: inForce(d), Lane: "promotional", Zone: func(*push.User) *time.Location { return zone },
		Segments: func(names []string, owner string, _ *push.User) []string {
			return append(names, "group/"+owner, "group/all")
		}}
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(d.asked) != 2 || d.asked[1].ID != "n2" || len(d.asked[1].Devices) != 1 || !slices.Equal(d.asked[1].Segments, []string{"group/bob", "group/all"}) {
		t.Fatalf("asked about %+v, want n1 and n2: critical passes", d.asked)
	}
	got := d.asked[0]
	if got.Jitter <= 0 || got.Jitter >= time.Minute || got.At.IsZero() {
		t.Errorf("jitter %v, at %v", got.Jitter, got.At)
	}
	jitter := got.Jitter
	got.Jitter, got.At = 0, time.Time{}
	want := limits.Request{Owner: "ada", ID: "n1", Type: "news", App: "shop", Lane: "promotional", Channel: push.ChannelPush, Priority: uint8(push.High),
		Segments: []string{"group/ada", "group/all"}, Personal: []limits.Personal{{Name: "hour", Max: 2}}, Zone: zone,
		Devices: []limits.Device{{Hash: limits.DeviceHash("a")}, {Hash: limits.DeviceHash("b")}}, State: []byte("state"), Since: first.Time(), Expires: expires.Time()}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("asked\n%+v, want\n%+v", got, want)
	}
	if limits.DeviceHash("a") == limits.DeviceHash("b") {
		t.Error("two devices are one")
	}

	// Asked again, the same notification waits for the same time. And where a rule
	// counts them, critical messages are asked about, too.
	d.critical, d.asked = true, nil
	b.Items[0].Allowed = false
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(d.asked) != 2 || d.asked[0].Jitter != jitter || d.asked[1].ID != "otp" {
		t.Errorf("asked again: %+v", d.asked)
	}
}

func TestLimitMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := &stages.Limits{Checks: stages.NewLimitMetrics(reg)}
	apply := func(d *decider, items ...pipeline.Item) {
		s.Limiter = inForce(d)
		if err := s.Apply(t.Context(), &pipeline.Batch{Items: items}); err != nil {
			t.Fatal(err)
		}
	}
	high := func(it *pipeline.Item) { it.Priority = push.High }
	low := func(it *pipeline.Item) { it.Priority = push.Low }
	critical := func(it *pipeline.Item) { it.Priority = push.Critical }
	apply(&decider{answer: func(r *limits.Request) {
		switch r.ID {
		case "over":
			r.Dimension, r.Rule, r.Current, r.Limit = "user", "day", 12, 10
		case "later":
			r.Deferred, r.Dimension, r.Rule, r.Current, r.Limit = true, "user_type", "hour", 1, 2 // full later on
		default:
			r.Allowed = true
			if r.ID == "half" {
				r.Devices[0] = limits.Device{Hash: r.Devices[0].Hash, Refused: true, Rule: "device", Current: 5, Limit: 5}
			}
		}
	}}, toDevices("a", high, "d"), toDevices("b", low, "d"), toDevices("half", low, "d", "e"), toDevices("over", low, "d"), toDevices("later", low, "d"), toDevices("otp", critical, "d"))
	apply(&decider{critical: true, answer: func(r *limits.Request) { r.Allowed = true }}, toDevices("otp2", critical, "d"))
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP push_rate_limit_checks_total Notifications, and for dimension device_type deliveries, that limits were asked about. dimension is that of the rule that did not allow, none = all allow. action: allowed, bypassed (critical), uncounted (critical, and what would have counted it could not be read), deferred, dropped.
# TYPE push_rate_limit_checks_total counter
push_rate_limit_checks_total{action="allowed",dimension="none",priority="bulk"} 0
push_rate_limit_checks_total{action="allowed",dimension="none",priority="high"} 1
push_rate_limit_checks_total{action="allowed",dimension="none",priority="low"} 2
push_rate_limit_checks_total{action="allowed",dimension="none",priority="medium"} 0
push_rate_limit_checks_total{action="bypassed",dimension="none",priority="critical"} 2
push_rate_limit_checks_total{action="deferred",dimension="user_type",priority="low"} 1
push_rate_limit_checks_total{action="dropped",dimension="device_type",priority="low"} 1
push_rate_limit_checks_total{action="dropped",dimension="user",priority="low"} 1
push_rate_limit_checks_total{action="uncounted",dimension="none",priority="critical"} 0
# HELP push_rate_limit_exceeded_total Those that a rule did not allow.
# TYPE push_rate_limit_exceeded_total counter
push_rate_limit_exceeded_total{dimension="device_type",rule="device"} 1
push_rate_limit_exceeded_total{dimension="device_type",rule="state_full"} 0
push_rate_limit_exceeded_total{dimension="user",rule="day"} 1
push_rate_limit_exceeded_total{dimension="user",rule="state_full"} 0
push_rate_limit_exceeded_total{dimension="user_type",rule="hour"} 1
`), "push_rate_limit_checks_total", "push_rate_limit_exceeded_total"); err != nil {
		t.Error(err)
	}
	for dimension, want := range map[string][2]float64{"user": {1, 3}, "user_type": {1, 1}, "device_type": {1, 1}, "segment": {}, "sender": {}} {
		if n, sum := overage(t, reg, dimension); n != want[0] || sum != want[1] {
			t.Errorf("%s: %v above their limit by %v, want %v", dimension, n, sum, want)
		}
	}
}

// The series of what limits allow are there from the start, at zero: rate() sees no
// series' first value.
func TestLimitMetricsBeginAtZero(t *testing.T) {
	reg := prometheus.NewRegistry()
	stages.NewLimitMetrics(reg)
	if n, err := testutil.GatherAndCount(reg, "push_rate_limit_checks_total"); err != nil || n != 6 { // four priorities allowed, and critical bypassed or uncounted
		t.Errorf("got %d series, %v, want 6", n, err)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP push_rate_limit_exceeded_total Those that a rule did not allow.
# TYPE push_rate_limit_exceeded_total counter
push_rate_limit_exceeded_total{dimension="device_type",rule="state_full"} 0
push_rate_limit_exceeded_total{dimension="user",rule="state_full"} 0
`), "push_rate_limit_exceeded_total"); err != nil {
		t.Error(err)
	}
	for _, action := range []string{"allowed", "bypassed", "uncounted"} {
		if n := checks(t, reg, action); n != 0 {
			t.Errorf("%s: got %d before anything was asked", action, n)
		}
	}
}

// overage reads how many were over a limit, and by how much in all; -1 = no series.
func overage(t *testing.T, reg *prometheus.Registry, dimension string) (n, sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); f.GetName() == "push_rate_limit_overage" && m.GetLabel()[0].GetValue() == dimension {
				return float64(h.GetSampleCount()), h.GetSampleSum()
			}
		}
	}
	return -1, -1
}

// The limits of senders come last: about critical messages and retries too, and about
// nothing that has its token, or is not sent. What they put off is held against the
// recipient's limits when it comes back, unless it was allowed before.
func TestWhatSendersMaySend(t *testing.T) {
	expires := time.Now().Add(time.Hour)
	from := func(sender string, edit func(*pipeline.Item)) func(*pipeline.Item) {
		return func(it *pipeline.Item) {
			it.SenderID, it.Expires = sender, push.At(expires)
			if edit != nil {
				edit(it)
			}
		}
	}
	b := &pipeline.Batch{Items: []pipeline.Item{
		toDevices("goes", from("shop", nil), "d"),
		toDevices("otp", from("auth", func(it *pipeline.Item) { it.Priority = push.Critical }), "d"),
		toDevices("again", from("shop", func(it *pipeline.Item) { it.Attempt, it.Allowed = 1, true }), "d"),
		toDevices("paid", from("shop", func(it *pipeline.Item) { it.Paid, it.Hops, it.Allowed = true, 1, true }), "d"),
		toDevices("nobody's", nil, "d"),
		toDevices("capped", from("shop", nil), "d"),
		toDevices("waits", from("shop", nil), "d"),
		toDevices("asks later", from("shop", nil), "d"),
		toDevices("too late", from("shop", nil), "d"),
		toDevices("nowhere", from("shop", nil)),
		toDevices("waits again", from("shop", func(it *pipeline.Item) { it.Hops, it.Allowed = 1, true }), "d"),
		toDevices("late retry", from("shop", func(it *pipeline.Item) { it.Attempt, it.Allowed = 2, true }), "d"),
	}}
	caps := &limiter{deny: map[string]bool{"capped": true}}
	senders := &decider{answer: hourly}
	reg := prometheus.NewRegistry()
	s := &stages.Limits{Limiter: inForce(caps), Senders: func() stages.Senders { return senders }, Lane: "promotional", Checks: stages.NewLimitMetrics(reg)}
	// The first time it fails when senders have answered: what they said stands, and
	// nobody is asked twice.
	caps.err = errors.New("connection refused")
	for range 2 {
		if err := s.Apply(t.Context(), b); !errors.Is(err, caps.err) {
			t.Fatal(err)
		}
		caps.err = nil
	}
	if n, err := testutil.GatherAndCount(reg, "push_rate_limit_exceeded_total"); err != nil || n != 2+2 { // the sender's and the user's rule, and the series that are always there
		t.Errorf("%d rules exceeded, %v", n, err)
	}
	var asked []string
	for i := range senders.asked {
		r := &senders.asked[i]
		asked = append(asked, r.Sender+"/"+r.ID)
		if r.Lane != "promotional" || r.At.IsZero() || !r.Since.Equal(hour) || !r.Expires.Equal(expires) || r.Jitter <= 0 {
			t.Errorf("%s: asked %+v", r.ID, r)
		}
	}
	if want := []string{"shop/goes", "auth/otp", "shop/again", "shop/waits", "shop/asks later", "shop/too late", "shop/waits again", "shop/late retry"}; !slices.Equal(asked, want) {
		t.Errorf("asked about %q, want %q", asked, want)
	}
	for i, want := range []struct {
		push.Verdict
		reason        push.Reason
		allowed, paid bool
	}{
		{push.Undecided, "", true, true}, {push.Undecided, "", false, true}, {push.Undecided, "", true, true}, {push.Undecided, "", true, true},
		{push.Undecided, "", true, false}, {push.Suppressed, push.Limited, false, false},
		{push.Deferred, push.LimitWaits, false, true}, {push.Deferred, push.LimitWaits, false, false}, {push.Suppressed, push.Limited, false, false},
		{push.Undecided, "", false, false}, {push.Deferred, push.LimitWaits, true, true}, {push.Undecided, "", true, true},
	} {
		if it := &b.Items[i]; it.Verdict != want.Verdict || it.Reason != want.reason || it.Allowed != want.allowed || it.Paid != want.paid {
			t.Errorf("%s: %v %q, allowed %t, paid %t, want %+v", it.ID, it.Verdict, it.Reason, it.Allowed, it.Paid, want)
		}
	}
}

// hourly is a sender's rule that answers by the id.
func hourly(r *limits.Request) {
	r.Decision = limits.Decision{Dimension: limits.DimensionSender, Rule: "hourly"}
	switch {
	case strings.HasPrefix(r.ID, "waits"):
		r.Deferred, r.Paid, r.RetryAfter = true, true, time.Minute
	case r.ID == "asks later":
		r.Deferred, r.RetryAfter = true, time.Hour
	case r.ID == "too late":
	default:
		r.Decision, r.Paid = limits.Decision{Allowed: true}, true
	}
}

// Where no rules of recipients are in force the senders' limits are asked alone.
func TestSendersAlone(t *testing.T) {
	b := &pipeline.Batch{Items: []pipeline.Item{
		toDevices("goes", func(it *pipeline.Item) { it.SenderID = "shop" }, "d"),
		toDevices("waits", func(it *pipeline.Item) { it.SenderID = "shop" }, "d"),
		toDevices("nobody's", nil, "d"),
	}}
	senders := &decider{answer: hourly}
	reg := prometheus.NewRegistry()
	s := &stages.Limits{Limiter: inForce(nil), Senders: func() stages.Senders { return senders }, Checks: stages.NewLimitMetrics(reg)}
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	goes, waits := &b.Items[0], &b.Items[1]
	if len(senders.asked) != 2 || goes.Verdict != push.Undecided || !goes.Paid || goes.Allowed || waits.Verdict != push.Deferred || !waits.Paid || waits.Allowed {
		t.Errorf("asked about %d, %v, paid %t, and %v, paid %t", len(senders.asked), goes.Verdict, goes.Paid, waits.Verdict, waits.Paid)
	}
	if allowed, bypassed, deferred := checks(t, reg, "allowed"), checks(t, reg, "bypassed"), checks(t, reg, "deferred"); allowed+bypassed > 0 || deferred != 1 {
		t.Errorf("%d allowed and %d bypassed, where there are no rules of recipients; %d deferred", allowed, bypassed, deferred)
	}
}

// What waits for its sender's turn comes back as the record that it was, for the same
// devices: rules of devices are asked again then, as nothing of theirs was spent.
func TestWhatSendersPutOffIsJudgedAnew(t *testing.T) {
	devices := &decider{answer: func(r *limits.Request) {
		r.Decision = limits.Decision{Allowed: true}
		for i := range r.Devices {
			r.Devices[i].Refused, r.Devices[i].Rule = r.Devices[i].Hash == limits.DeviceHash("b"), "device-a-day"
		}
	}}
	s := &stages.Limits{Limiter: inForce(devices), Senders: func() stages.Senders { return &decider{answer: hourly} }}
	for _, before := range [][]string{nil, {"a", "b", "c"}} {
		b := &pipeline.Batch{Items: []pipeline.Item{toDevices("waits", func(it *pipeline.Item) { it.SenderID, it.Devices = "shop", before }, "a", "b", "c")}}
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		it := &b.Items[0]
		if it.Verdict != push.Deferred || it.Allowed || !it.Paid || !slices.Equal(it.Devices, before) {
			t.Fatalf("%v, allowed %t, paid %t, for %q, want %q", it.Verdict, it.Allowed, it.Paid, it.Devices, before)
		}
		back := &pipeline.Batch{Items: []pipeline.Item{toDevices("waits", func(o *pipeline.Item) {
			o.SenderID, o.Hops, o.Paid, o.Allowed, o.Devices = "shop", 1, it.Paid, it.Allowed, it.Devices
		}, "a", "b", "c")}}
		if err := s.Apply(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		if it = &back.Items[0]; it.Verdict != push.Undecided || !it.Allowed || it.Deliveries[0].Verdict != push.Undecided || it.Deliveries[1].Verdict != push.Suppressed {
			t.Errorf("come back: %v, %+v", it.Verdict, it.Deliveries)
		}
	}
}

// The requests of a batch are made where those of the one before were: nothing of them
// is left.
func TestABatchAsksNothingOfTheBatchBefore(t *testing.T) {
	d := &decider{answer: func(r *limits.Request) {
		r.Allowed, r.Paid = true, true
		for i := range r.Devices {
			r.Devices[i].Refused, r.Devices[i].Rule = true, "device-a-day"
		}
	}}
	s := &stages.Limits{
		Limiter:  func() stages.Limiter { return d },
		Segments: func(names []string, owner string, _ *push.User) []string { return append(names, "group/"+owner) },
	}
	first := &pipeline.Batch{Items: []pipeline.Item{
		toDevices("n1", func(it *pipeline.Item) { it.SenderID, it.CollapseKey = "shop", "k" }, "a", "b"), toDevices("n2", nil, "c"),
	}}
	alone := &pipeline.Batch{Items: []pipeline.Item{toDevices("n3", nil, "d")}}
	for _, b := range []*pipeline.Batch{first, alone} {
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.asked) != 3 {
		t.Fatalf("asked %d times, want once for each item", len(d.asked))
	}
	got := d.asked[2]
	if got.ID != "n3" || got.Sender != "" || got.Paid || got.Allowed || len(got.Devices) != 1 || got.Devices[0] != (limits.Device{Hash: limits.DeviceHash("d")}) || len(got.Segments) != 1 {
		t.Errorf("the second batch asks %+v", got)
	}
}
