package configs

import (
	"strings"
	"testing"
	"time"
)

// Each rule that cannot work is refused with the key at fault.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		why  string
		edit func(*Rule)
		want string // path and part of the message; empty = valid
	}{
		{"plain", func(*Rule) {}, ""},
		{"no window", func(r *Rule) { r.Window = 0 }, "window: must be at least 1s"},
		{"a day by the user's clock", func(r *Rule) { r.Window, r.Calendar, r.Algorithm = 0, "day", "fixed_window" }, ""},
		{"ids of a day", func(r *Rule) { r.Window, r.Calendar, r.Algorithm = 0, "day", "event_set" }, ""},
		{"both", func(r *Rule) { r.Calendar, r.Algorithm = "day", "event_set" }, "window: must not be set beside calendar"},
		{"a calendar that slides", func(r *Rule) { r.Window, r.Calendar = 0, "day" }, "calendar: is for the algorithms fixed_window and event_set"},
		{"a fixed window without one", func(r *Rule) { r.Algorithm = "fixed_window" }, "calendar: must be minute, hour or day"},
		{"a calendar of months", func(r *Rule) { r.Window, r.Calendar, r.Algorithm = 0, "month", "fixed_window" }, "calendar: must be one of"},
		{"an unknown algorithm", func(r *Rule) { r.Algorithm = "guess" }, "algorithm: must be one of"},
		{"a segment", func(r *Rule) { r.Per, r.Segments = "segment", []string{"lifecycle/new"} }, ""},
		{"a segment without one", func(r *Rule) { r.Per = "segment" }, "segments: must name one"},
		{"devices only drop", func(r *Rule) { r.Per, r.Over = "device_type", "defer" }, "over: must be drop"},
		{"a user waits", func(r *Rule) { r.Over = "defer" }, ""},
		{"distinct of all types together", func(r *Rule) { r.Distinct = []string{"news"} }, "distinct: is for rules per user_type and device_type"},
		{"distinct", func(r *Rule) { r.Per, r.Distinct = "user_type", []string{"news"} }, ""},
		{"a segment twice", func(r *Rule) { r.SegmentMax = []SegmentMax{{"a/b", 1}, {"a/b", 2}} }, "segment_max[1].segment: is in the list already"},
		{"a lane that is not there", func(r *Rule) { r.Lanes = []string{"critical", "otp"} }, `lanes[1]: there is no lane "otp"`},
		{"an app that is not there", func(r *Rule) { r.Apps = []string{"bank"} }, `apps[0]: there is no app "bank"`},
		{"a priority that is not there", func(r *Rule) { r.Priorities = []string{"low", "urgent"} }, `priorities[1]: there is no priority "urgent"`},
		{"a channel that is not there", func(r *Rule) { r.Channels = []string{"pigeon"} }, `channels[0]: there is no channel "pigeon"`},
	} {
		c := Default()
		c.Apps = []App{{Name: "shop"}}
		r := Rule{Name: "hour", Per: "user", Max: 3, Window: time.Hour}
		tt.edit(&r)
		c.Limits.Rules, c.Limits.StateVersion = []Rule{r}, 2
		var found []string
		for _, p := range c.check() {
			if strings.HasPrefix(p.Path, "limits.") {
				found = append(found, p.Path+": "+p.Message)
			}
		}
		switch {
		case tt.want == "" && len(found) > 0:
			t.Errorf("%s: %v", tt.why, found)
		case tt.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], "limits.rules[0]."+tt.want)):
			t.Errorf("%s: %q, want %q", tt.why, found, tt.want)
		}
	}
}

// States of version 1 carry what the previous release knew, and nothing else.
func TestStateVersion(t *testing.T) {
	t.Parallel()
	plain := Rule{Name: "hour", Per: "user", Max: 3, Window: time.Hour}
	for _, tt := range []struct {
		why     string
		edit    func(*Rule)
		refused bool
	}{
		{"plain", func(*Rule) {}, false},
		{"by type", func(r *Rule) {
			r.Per, r.Types, r.Algorithm, r.Over = "user_type", []string{"news"}, "sliding_log", "drop"
		}, false},
		{"deferring", func(r *Rule) { r.Over = "defer" }, true},
		{"per device", func(r *Rule) { r.Per = "device_type" }, true},
		{"of a lane", func(r *Rule) { r.Lanes = []string{"critical"} }, true},
		{"personal", func(r *Rule) { r.Personal = true }, true},
		{"counting critical", func(r *Rule) { r.CountCritical = true }, true},
	} {
		for _, version := range []int{1, 2} {
			c, r := Default(), plain
			tt.edit(&r)
			c.Limits.Rules, c.Limits.StateVersion = []Rule{r}, version
			refused := false
			for _, p := range c.check() {
				refused = refused || p.Path == "limits.state_version" && strings.Contains(p.Message, "hour")
			}
			if refused != (tt.refused && version == 1) {
				t.Errorf("%s, version %d: refused %t", tt.why, version, refused)
			}
		}
	}
}

// Cassandra counts rules of devices that it can count, whatever the version of the
// states, and none of the others.
func TestDevicesInCassandra(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		why  string
		rule Rule
		want string // key of the rule; empty = valid
	}{
		{"a day", Rule{Per: "device_type", Calendar: "day", Algorithm: "event_set"}, ""},
		{"an hour", Rule{Per: "device_type", Window: time.Hour}, ""},
		{"more than an hour", Rule{Per: "device_type", Window: time.Hour + time.Second}, "window"},
		{"an hour of the clock", Rule{Per: "device_type", Calendar: "hour", Algorithm: "fixed_window"}, "calendar"},
		{"a counter", Rule{Per: "device_type", Window: time.Minute, Algorithm: "sliding_counter"}, "algorithm"},
		{"a counter of users", Rule{Per: "user", Window: 2 * time.Hour, Algorithm: "sliding_counter"}, "state_version"},
	} {
		c := Default()
		tt.rule.Name, tt.rule.Max = "r", 1
		c.Limits.Rules, c.Limits.Devices.Backend = []Rule{tt.rule}, "cassandra"
		ps := c.check()
		if tt.want == "" && len(ps) > 0 || tt.want != "" && (len(ps) != 1 || !strings.HasSuffix(ps[0].Path, "."+tt.want)) {
			t.Errorf("%s: %v, want %q", tt.why, ps, tt.want)
		}
	}
}

// What is for one kind of source is not for another; rules about segments without a
// source are about nobody.
func TestSegments(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		why  string
		edit func(*Segments)
		want string // path; empty = valid
	}{
		{"none", func(*Segments) {}, ""},
		{"a file", func(s *Segments) { s.Source = "/etc/pushfleet/users.seg" }, ""},
		{"storage with keys", func(s *Segments) { s.Source, s.S3CredentialsFile = "s3://audience/users.seg", "keys" }, ""},
		{"keys for a file", func(s *Segments) { s.Source, s.S3CredentialsFile = "users.seg", "keys" }, "segments.s3_credentials_file"},
		{"a token for storage", func(s *Segments) { s.Source, s.TokenFile = "s3://audience/users.seg", "token" }, "segments.token_file"},
		{"a page with a token", func(s *Segments) { s.Source, s.TokenFile = "https://example.com/users.seg", "token" }, ""},
	} {
		c := Default()
		tt.edit(&c.Segments)
		ps := c.check()
		if tt.want == "" && len(ps) > 0 || tt.want != "" && (len(ps) != 1 || ps[0].Path != tt.want) {
			t.Errorf("%s: %v", tt.why, ps)
		}
	}
	c := Default()
	c.Limits = Limits{StateVersion: 2, Rules: []Rule{{Name: "hour"}, {Name: "week", SegmentMax: []SegmentMax{{"a/b", 1}}}}}
	if notes := c.aboutNobody(); len(notes) != 1 || notes[0].Path != "limits.rules[1]" {
		t.Errorf("notes without a source: %v", notes)
	}
	if c.Segments.Source = "users.seg"; len(c.aboutNobody()) != 0 {
		t.Error("notes with a source")
	}
}

func TestSenderRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		why  string
		edit func(*SenderRule)
		want string // path; empty = valid
	}{
		{"plain", func(*SenderRule) {}, ""},
		{"a small burst", func(r *SenderRule) { r.Burst = 3 }, ""},
		{"a burst above max", func(r *SenderRule) { r.Burst = 11 }, "burst"},
		{"a leaky bucket", func(r *SenderRule) { r.Algorithm, r.Burst = "leaky_bucket", 1 }, ""},
		{"that bursts", func(r *SenderRule) { r.Algorithm, r.Burst = "leaky_bucket", 2 }, "burst"},
		{"a sliding log", func(r *SenderRule) { r.Algorithm = "sliding_log" }, "algorithm"},
		{"no window", func(r *SenderRule) { r.Window = 0 }, "window"},
		{"a lane that is not there", func(r *SenderRule) { r.Lanes = []string{"otp"} }, "lanes[0]"},
	} {
		c := Default()
		r := SenderRule{Name: "hour", Algorithm: "token_bucket", Max: 10, Window: time.Hour}
		tt.edit(&r)
		c.Limits.Senders = []SenderRule{r}
		ps := c.check()
		if tt.want == "" && len(ps) > 0 || tt.want != "" && (len(ps) != 1 || ps[0].Path != "limits.senders[0]."+tt.want) {
			t.Errorf("%s: %v", tt.why, ps)
		}
	}
	c := Default()
	same := SenderRule{Name: "hour", Algorithm: "token_bucket", Max: 10, Window: time.Hour}
	c.Limits.Senders = []SenderRule{same, same}
	if ps := c.check(); len(ps) != 1 || ps[0].Path != "limits.senders[1].name" {
		t.Errorf("two of one name: %v", ps)
	}
}
