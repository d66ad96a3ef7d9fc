package configs

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestChanged(t *testing.T) {
	for _, tt := range []struct {
		why  string
		edit func(*Config)
		want []string
	}{
		{"nothing", func(*Config) {}, nil},
		{"what a worker reads again", func(c *Config) {
			c.Limits.Rules, c.Preferences.DefaultZone, c.Countries = []Rule{{Name: "hour"}}, "Europe/Berlin", []Country{{Country: "DE"}}
		}, nil},
		{"in the order of the file", func(c *Config) { c.Log.Level, c.Kafka.Group, c.Lanes[0].Topic = "debug", "other", "push.other" }, []string{"kafka", "lanes", "log"}},
		{"one more of a list", func(c *Config) { c.Apps = append(c.Apps, App{Name: "more"}) }, []string{"apps"}},
	} {
		other := Default()
		tt.edit(other)
		if got := Default().Changed(other); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.why, got, tt.want)
		}
	}
}

// Of the whole file only what decides who gets what is read again.
func TestEveryOtherSectionNeedsARestart(t *testing.T) {
	var want []string
	for field := range reflect.TypeFor[Config]().Fields() {
		if name := field.Tag.Get("yaml"); name != "limits" && name != "preferences" && name != "countries" {
			want = append(want, name)
		}
	}
	none := &Config{Apps: []App{{Name: "shop"}}, Traces: Traces{Ratio: 1}} // by default there are none
	if got := none.Changed(Default()); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A worker with a source of segments takes rules about them, whatever source the file has
// by now.
func TestReloadedRulesAboutSegments(t *testing.T) {
	for _, source := range []string{"/segments", "/elsewhere", ""} {
		c, other := Default(), Default()
		c.Segments.Source, other.Segments.Source = "/segments", source
		other.Limits.Rules = []Rule{{Name: "r", Segments: []string{"a"}}}
		if _, err := c.Reloaded(other); err != nil {
			t.Errorf("source %q: %v", source, err)
		}
	}
}

// Rules are held against the lanes, apps and segments that a worker runs with, whatever
// else the file has come to hold.
func TestReloadedRulesAreAboutWhatRuns(t *testing.T) {
	app := func(name string) App { return App{Name: name} }
	for _, tt := range []struct {
		why   string
		edit  func(*Config) // of what runs, with the app shop and the default lanes
		wrong string        // what the error names; empty = none
	}{
		{"an app that runs", func(c *Config) { c.Limits.Rules = []Rule{{Name: "r", Apps: []string{"shop"}}} }, ""},
		{"an app that the file has lost: it still runs", func(c *Config) {
			c.Apps, c.Limits.Rules = []App{app("new")}, []Rule{{Name: "r", Apps: []string{"shop"}}}
		}, ""},
		{"an app of the file alone", func(c *Config) {
			c.Apps = append(c.Apps, app("new"))
			c.Limits.Rules = []Rule{{Name: "all"}, {Name: "r", Apps: []string{"shop", "new"}}}
		}, "needs a restart first: limits.rules[1].apps[1]: "},
		{"a lane of the file alone", func(c *Config) {
			c.Lanes = append(slices.Clone(c.Lanes), Lane{Name: "new"})
			c.Limits.Rules = []Rule{{Name: "r", Lanes: []string{"new"}}}
		}, "limits.rules[0].lanes[0]: "},
		{"a sender's limit", func(c *Config) {
			c.Apps = append(c.Apps, app("new"))
			c.Limits.Senders = []SenderRule{{Name: "s", Apps: []string{"new"}}}
		}, "limits.senders[0].apps[0]: "},
		{"a sender's limit about a lane of the file alone", func(c *Config) {
			c.Lanes = append(slices.Clone(c.Lanes), Lane{Name: "new"})
			c.Limits.Senders = []SenderRule{{Name: "s", Lanes: []string{"new"}}}
		}, "limits.senders[0].lanes[0]: "},
		{"the first source of segments", func(c *Config) {
			c.Segments.Source = "/segments"
			c.Limits.Rules = []Rule{{Name: "r", SegmentMax: []SegmentMax{{Segment: "a"}}}}
		}, "limits.rules[0]: names segments"},
		{"segments without a source, as at the start", func(c *Config) { c.Limits.Rules = []Rule{{Name: "r", Segments: []string{"a"}}} }, ""},
	} {
		c, other := Default(), Default()
		c.Apps, other.Apps = []App{app("shop")}, []App{app("shop")}
		other.Log.Level = "debug"
		tt.edit(other)
		got, err := c.Reloaded(other)
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.wrong)
		}
		if err != nil {
			continue
		}
		if !reflect.DeepEqual(got.Limits, other.Limits) || !reflect.DeepEqual(got.Apps, c.Apps) || got.Log.Level != c.Log.Level {
			t.Errorf("%s: got limits %+v, apps %+v and log %+v", tt.why, got.Limits, got.Apps, got.Log)
		}
		if changed := c.Changed(got); len(changed) > 0 {
			t.Errorf("%s: %v are of the other", tt.why, changed)
		}
	}
}
