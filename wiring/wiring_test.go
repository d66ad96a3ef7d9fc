package wiring

import (
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/rates"
)

// Every number of a gate comes from the configuration: the defaults are the
// pipeline's own, and each of them, changed, arrives.
func TestGatesAreAsConfigured(t *testing.T) {
	want := gates.DefaultOptions()
	want.Jitter, want.Together = nil, true // a worker has a store for that
	c := configs.Default()
	got := Gates(c)
	got.Jitter = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the defaults make\n%+v, want\n%+v", got, want)
	}
	for _, path := range numbersOf(reflect.TypeFor[configs.Gates](), nil) {
		c := configs.Default()
		switch v := reflect.ValueOf(&c.Gates).Elem().FieldByIndex(path); v.Kind() {
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Float64:
			v.SetFloat(v.Float() / 2)
		default:
			v.SetInt(v.Int() + 1)
		}
		got := Gates(c)
		got.Jitter = nil
		if reflect.DeepEqual(got, want) {
			t.Errorf("%s is not used", reflect.TypeFor[configs.Gates]().FieldByIndex(path).Name)
		}
	}
}

// Apps of one project share its rate, as those of a team's topic do in each environment;
// the factors are those of the rates, and each arrives.
func TestRatesAreAsConfigured(t *testing.T) {
	c := configs.Default()
	if got, want := Rates(c, nil).Factors, rates.DefaultFactors(); got != want {
		t.Errorf("the defaults make\n%+v, want\n%+v", got, want)
	}
	c.Apps = []configs.App{
		{Name: "shop", FCM: &configs.FCM{Project: "one", Rate: 500}, APNS: &configs.APNS{TeamID: "TEAM", Topic: "com.shop", Environments: []string{"production", "sandbox"}}},
		{Name: "bank", FCM: &configs.FCM{Project: "one", Rate: 500}},
		{Name: "pager", Accounts: map[string]string{"beep.url": "x"}},
	}
	want := map[push.Route]rates.Counted{
		{Platform: push.FCM, App: "shop"}:                                {Name: "fcm/one", Base: 500, Window: time.Minute},
		{Platform: push.FCM, App: "bank"}:                                {Name: "fcm/one", Base: 500, Window: time.Minute},
		{Platform: push.APNS, App: "shop", Environment: push.Production}: {Name: "apns/TEAM/com.shop/production"},
		{Platform: push.APNS, App: "shop", Environment: push.Sandbox}:    {Name: "apns/TEAM/com.shop/sandbox"},
	}
	if got := Counted(c); !reflect.DeepEqual(got, want) {
		t.Errorf("counted as %+v, want %+v", got, want)
	}
}

// numbersOf are the places of all numbers in a struct.
func numbersOf(s reflect.Type, at []int) (paths [][]int) {
	for i := range s.NumField() {
		path := append(append([]int(nil), at...), i)
		if f := s.Field(i); f.Type.Kind() == reflect.Struct {
			paths = append(paths, numbersOf(f.Type, path)...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}

// What a lane says about sends of unknown outcome arrives, and at_most_once
// drops them whatever it says; so do the retries.
func TestPolicyIsAsConfigured(t *testing.T) {
	c := configs.Default()
	c.Retries.Max, c.Retries.Tiers = 2, []time.Duration{time.Second, time.Minute}
	for _, row := range []struct {
		mode, ambiguous string
		drops           bool
	}{
		{configs.AtLeastOnce, "resend", false},
		{configs.AtLeastOnce, configs.AmbiguousUnknown, true},
		{configs.EffectivelyOnce, "resend", false},
		{configs.EffectivelyOnce, configs.AmbiguousUnknown, true},
		{configs.AtMostOnce, "resend", true},
		{configs.AtMostOnce, configs.AmbiguousUnknown, true},
	} {
		l := c.Lanes[0]
		l.Mode, l.Ambiguous = row.mode, row.ambiguous
		want := pipeline.Policy{MaxRetries: 2, RetryDelays: c.Retries.Tiers, DropAmbiguous: row.drops}
		if got := Policy(c, l); !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %s: %+v, want %+v", row.mode, row.ambiguous, got, want)
		}
	}
}

// What the configuration says about preferences arrives, where it is to arrive.
func TestPreferencesAreAsConfigured(t *testing.T) {
	c := configs.Default()
	c.Preferences = configs.Preferences{DefaultZone: "Asia/Kolkata", OptInTypes: []string{"survey"}, PromotionalTypes: []string{"promo"}, DropTypes: []string{"flash"}}
	c.Countries = []configs.Country{
		{Country: "DE", Zone: "Europe/Berlin", Hours: []configs.Hours{{From: "20:00", To: "09:30", Days: []string{"sat", "sun"}, Types: []string{"promo"}}}},
		{Country: configs.AnyCountry},
	}
	o, err := Quiet(c)
	if err != nil {
		t.Fatal(err)
	}
	german := push.QuietHours{From: 20 * 60, To: 9*60 + 30, Days: 1 | 64, Types: []string{"promo"}}
	de := o.Countries["DE"]
	if o.Default.String() != "Asia/Kolkata" || !o.Promotional["promo"] || o.Promotional["flash"] || !o.Drop["flash"] || o.Drop["promo"] || len(o.Countries) != 2 ||
		de.Zone.String() != "Europe/Berlin" || len(de.Hours) != 1 || !reflect.DeepEqual(de.Hours[0], german) || o.Countries[quiet.Elsewhere].Zone != nil {
		t.Errorf("%+v", o)
	}
	for _, ignores := range []bool{false, true} {
		if got := Consent(c, configs.Lane{IgnoreBlocked: ignores}); got.IgnoreBlocked != ignores || len(got.OptIn) != 1 || !got.OptIn["survey"] {
			t.Errorf("%+v", got)
		}
	}
	if o, err := Quiet(configs.Default()); err != nil || o.Default.String() != "UTC" || len(o.Countries)+len(o.Promotional)+len(o.Drop) > 0 {
		t.Errorf("by default %+v, %v", o, err)
	}
	c.Countries[1].Zone = "Europe/Atlantis"
	if _, err := Quiet(c); err == nil {
		t.Error("a zone that there is not is taken")
	}
}

// The limits that the shipped file shows can be put in force, in states of version 2.
func TestRules(t *testing.T) {
	c := configs.Default()
	c.Limits.StateVersion = 2
	c.Limits.Rules = []configs.Rule{
		{Name: "hour", Per: "user", Algorithm: "sliding_counter", Max: 15, Window: time.Hour, Over: "defer", Priorities: []string{"low", "bulk"}},
		{Name: "day", Per: "device_type", Algorithm: "event_set", Max: 3, Calendar: "day", Distinct: []string{"news"}},
		{Name: "week", Per: "segment", Max: 10, Window: 168 * time.Hour, Segments: []string{"lifecycle/new"}, PerApp: true, CountCritical: true, Personal: true,
			Types: []string{"a"}, Lanes: []string{"critical"}, Channels: []string{"push"}, Apps: []string{"shop"}, SegmentMax: []configs.SegmentMax{{Segment: "lifecycle/active", Max: 20}}},
	}
	want := []limits.Rule{
		{Name: "hour", Per: limits.PerUser, Algorithm: limits.SlidingCounter, Max: 15, Window: time.Hour, Over: limits.Defer, Priorities: []uint8{uint8(push.Low), uint8(push.Bulk)}},
		{Name: "day", Per: limits.PerDeviceType, Algorithm: limits.EventSet, Max: 3, Calendar: limits.Day, Distinct: []string{"news"}},
		{Name: "week", Per: limits.PerSegment, Max: 10, Window: 168 * time.Hour, Segments: []string{"lifecycle/new"}, PerApp: true, CountCritical: true, Personal: true,
			Types: []string{"a"}, Lanes: []string{"critical"}, Channels: []string{"push"}, Apps: []string{"shop"}, SegmentMax: map[string]int{"lifecycle/active": 20}},
	}
	rules := Rules(c)
	if !reflect.DeepEqual(rules, want) {
		t.Errorf("rules are\n%+v, want\n%+v", rules, want)
	}
	if _, err := limits.New(nil, rules, LimitsOptions(c, nil)...); err != nil {
		t.Error(err)
	}
	crowded := *c
	crowded.Apps = make([]configs.App, 500_000) // one of them has the hash of shop, by which a rule goes
	for i := range crowded.Apps {
		crowded.Apps[i].Name = strconv.Itoa(i)
	}
	if err := CheckLimits(&crowded); err == nil || !strings.Contains(err.Error(), "app shop has the hash of app ") {
		t.Errorf("apps that cannot be told apart: got %v", err)
	}
	crowded.Limits.Rules = nil
	for why, c := range map[string]*configs.Config{"no rules": &crowded, "rules": c} {
		if err := CheckLimits(c); err != nil {
			t.Errorf("%s: got %v", why, err)
		}
	}
	c.Limits.StateVersion = 1
	if _, err := limits.New(nil, rules, LimitsOptions(c, nil)...); err == nil {
		t.Error("rules that only states of version 2 carry are taken with version 1")
	}
	c.Limits.Rules, c.Limits.Devices.Backend = c.Limits.Rules[1:2], "cassandra"
	if err := CheckLimits(c); err != nil {
		t.Errorf("a rule of devices that states need not carry: got %v", err)
	}
}

// Rows are packed where that is configured, and not by themselves: earlier releases cannot
// read them.
func TestRowsArePackedWhereConfigured(t *testing.T) {
	for _, packed := range []bool{false, true} {
		c := configs.Default()
		if packed {
			c.Cassandra.PackedRows = true
		}
		if o, err := Cassandra(c, nil, slog.New(slog.DiscardHandler)); err != nil || o.PackedRows != packed {
			t.Errorf("packed rows %v, want %v (%v)", o.PackedRows, packed, err)
		}
	}
}

// Rows linger as configured: two fifths of what may be without acknowledgement, and one at least.
func TestStatusRowsLinger(t *testing.T) {
	for _, tt := range []struct{ rows, unacknowledged, want int }{{200, 5000, 2000}, {200, 300, 120}, {1, 1, 1}} {
		c := configs.Default()
		c.Status = configs.Status{Flush: 7 * time.Millisecond, Rows: tt.rows, Unacknowledged: tt.unacknowledged}
		o, err := Cassandra(c, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if o.Lingering != tt.want || o.FlushRows != tt.rows || o.FlushLinger != c.Status.Flush {
			t.Errorf("of %d rows a batch and %d in all: %d linger, for %s, %d a batch; want %d", tt.rows, tt.unacknowledged, o.Lingering, o.FlushLinger, o.FlushRows, tt.want)
		}
	}
}
