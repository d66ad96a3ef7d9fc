package configs

import (
	"fmt"
	"reflect"
	"strconv"
)

// reloaded are the sections that a running worker reads again.
var reloaded = map[string]bool{"preferences": true, "countries": true, "limits": true}

// Changed returns the names of the sections in which other differs from c and which
// take effect only when the worker is started again, in the order of the file.
func (c *Config) Changed(other *Config) (sections []string) {
	a, b := reflect.ValueOf(c).Elem(), reflect.ValueOf(other).Elem()
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("yaml")
		if !reloaded[name] && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			sections = append(sections, name)
		}
	}
	return sections
}

// Reloaded returns what a worker that runs with c works by once it has read other: its
// own configuration, with the sections of other that take effect without a restart. The
// error says which of their keys name a lane or an app that this worker does not run
// with, or segments while it has no source of them: such a rule would be about nothing.
func (c *Config) Reloaded(other *Config) (*Config, error) {
	merged := *c
	to, from := reflect.ValueOf(&merged).Elem(), reflect.ValueOf(other).Elem()
	for i := range to.NumField() {
		if reloaded[to.Type().Field(i).Tag.Get("yaml")] {
			to.Field(i).Set(from.Field(i))
		}
	}
	sources := c.Segments.Source != "" || other.Segments.Source == "" // without any, it is as at the start: a note
	var ps Problems
	for i := range merged.Limits.Rules {
		r, at := &merged.Limits.Rules[i], "limits.rules["+strconv.Itoa(i)+"]"
		merged.checkMatches(&ps, r, at+".")
		if r.namesSegments() && !sources {
			ps.add(at, "names segments, and segments.source was empty when the worker was started")
		}
	}
	for i := range merged.Limits.Senders {
		r := &merged.Limits.Senders[i]
		merged.checkMatches(&ps, &Rule{Lanes: r.Lanes, Apps: r.Apps}, "limits.senders["+strconv.Itoa(i)+"].")
	}
	if len(ps) > 0 {
		return nil, fmt.Errorf("this worker needs a restart first: %w", ps)
	}
	return &merged, nil
}
