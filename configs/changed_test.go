package configs

import (
	"reflect"
	"slices"
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
	none := &Config{Apps: []App{{Name: "shop"}}} // by default there are none
	if got := none.Changed(Default()); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
