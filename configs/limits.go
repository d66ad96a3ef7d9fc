package configs

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Limits are the rules for how many notifications a user may get. Workers that run
// read them again.
type Limits struct {
	Rules   []Rule       `yaml:"rules"`
	Senders []SenderRule `yaml:"senders"`
	// StateVersion is in which form users' states are written: 1 is read by the
	// workers of the previous release too, and carries only rules that it knew.
	StateVersion int `yaml:"state_version" check:"min=1,max=2"`
	// Devices says where rules per device_type count. It takes a restart.
	Devices DeviceLimits `yaml:"devices"`
}

// DeviceLimits are where rules per device_type count.
type DeviceLimits struct {
	Backend     string `yaml:"backend" check:"oneof=redis|cassandra"`
	Consistency string `yaml:"consistency" check:"oneof=LOCAL_ONE|LOCAL_QUORUM|QUORUM|ONE"` // of reads and writes in Cassandra
	Concurrency int    `yaml:"concurrency" check:"min=1,max=4096"`                          // queries in flight at once
}

// InCassandra reports whether rules per device_type count in Cassandra.
func (d *DeviceLimits) InCassandra() bool { return d.Backend == "cassandra" }

// longestInCassandra is the longest window that slides there.
const longestInCassandra = time.Hour

// Rule allows Max notifications in a window. Critical messages pass. Package limits
// says what the words mean.
type Rule struct {
	Name      string        `yaml:"name" check:"required,name"`
	Per       string        `yaml:"per" check:"oneof=user|user_type|device_type|segment"`
	Algorithm string        `yaml:"algorithm" check:"oneof=|sliding_log|sliding_counter|fixed_window|event_set"` // empty = sliding_log
	Max       int           `yaml:"max" check:"min=1,max=4096"`
	Window    time.Duration `yaml:"window" check:"max=744h"` // 0 with Calendar
	Calendar  string        `yaml:"calendar" check:"oneof=|minute|hour|day"`
	Over      string        `yaml:"over" check:"oneof=|drop|defer"` // empty = drop

	// What the rule is about; empty = all.
	Types      []string `yaml:"types"`
	Lanes      []string `yaml:"lanes"`
	Channels   []string `yaml:"channels"`
	Apps       []string `yaml:"apps"`
	Priorities []string `yaml:"priorities"`
	Segments   []string `yaml:"segments"`

	Distinct      []string     `yaml:"distinct"` // types with a count of their own; all others share one
	PerApp        bool         `yaml:"per_app"`
	CountCritical bool         `yaml:"count_critical"`
	Personal      bool         `yaml:"personal"`
	SegmentMax    []SegmentMax `yaml:"segment_max"`
}

// SegmentMax is what users of a segment get in place of a rule's Max.
type SegmentMax struct {
	Segment string `yaml:"segment" check:"required"`
	Max     int    `yaml:"max" check:"min=0,max=4096"` // 0 = nothing
}

// SenderRule is a limit of each sender, by sender_id; what is over it waits.
type SenderRule struct {
	Name      string        `yaml:"name" check:"required,name"`
	Algorithm string        `yaml:"algorithm" check:"oneof=token_bucket|leaky_bucket"`
	Max       int           `yaml:"max" check:"min=1,max=1000000"`
	Window    time.Duration `yaml:"window" check:"min=1s,max=24h"`
	Burst     int           `yaml:"burst" check:"min=0,max=1000000"` // 0 = Max
	Wait      time.Duration `yaml:"wait" check:"min=0s,max=24h"`

	// What it is about; empty = all.
	Senders []string `yaml:"senders"`
	Lanes   []string `yaml:"lanes"`
	Types   []string `yaml:"types"`
	Apps    []string `yaml:"apps"`
}

// minWindow is the shortest window of a rule.
const minWindow = time.Second

func (c *Config) checkRules(ps *Problems) {
	names := map[string]bool{}
	for i := range c.Limits.Rules {
		r := &c.Limits.Rules[i]
		at := "limits.rules[" + strconv.Itoa(i) + "]."
		if names[r.Name] && r.Name != "" {
			ps.add(at+"name", "is also the name of another rule")
		}
		names[r.Name] = true
		r.check(ps, at)
		c.checkMatches(ps, r, at)
		logged := c.Limits.Devices.InCassandra() && r.Per == "device_type"
		if logged {
			r.checkLogged(ps, at)
		}
		if c.Limits.StateVersion == 1 && !logged && !r.plain() {
			ps.add("limits.state_version", "must be 2 for rule %s: version 1 knows rules per user and user_type with a sliding log, by type, that drop. Upgrade all workers first", r.Name)
		}
	}
}

// mostSenderRules is how many rules of senders there may be.
const mostSenderRules = 64

func (c *Config) checkSenderRules(ps *Problems) {
	names := map[string]bool{}
	if len(c.Limits.Senders) > mostSenderRules {
		ps.add("limits.senders", "must have at most %d rules", mostSenderRules)
	}
	for i := range c.Limits.Senders {
		r := &c.Limits.Senders[i]
		at := "limits.senders[" + strconv.Itoa(i) + "]."
		if names[r.Name] && r.Name != "" {
			ps.add(at+"name", "is also the name of another rule")
		}
		names[r.Name] = true
		switch {
		case r.Burst > r.Max:
			ps.add(at+"burst", "must be at most max, %d", r.Max)
		case r.Burst > 1 && r.Algorithm == "leaky_bucket":
			ps.add(at+"burst", "must be 1 or 0 for leaky_bucket, which never lets two through at once")
		}
		c.checkMatches(ps, &Rule{Lanes: r.Lanes, Apps: r.Apps}, at)
	}
}

// check holds the keys of one rule against each other.
func (r *Rule) check(ps *Problems, at string) {
	calendar, perType := r.Calendar != "", r.Per == "user_type" || r.Per == "device_type"
	switch {
	case calendar && r.Window != 0:
		ps.add(at+"window", "must not be set beside calendar")
	case !calendar && r.Window < minWindow:
		ps.add(at+"window", "must be at least %v", minWindow)
	}
	switch {
	case calendar && r.Algorithm != "fixed_window" && r.Algorithm != "event_set":
		ps.add(at+"calendar", "is for the algorithms fixed_window and event_set: the windows of others slide")
	case !calendar && r.Algorithm == "fixed_window":
		ps.add(at+"calendar", "must be minute, hour or day for fixed_window")
	}
	if r.Per == "segment" && len(r.Segments) == 0 {
		ps.add(at+"segments", "must name one for a rule per segment")
	}
	if r.Per == "device_type" && r.Over == "defer" {
		ps.add(at+"over", "must be drop for a rule per device_type")
	}
	if len(r.Distinct) > 0 && !perType {
		ps.add(at+"distinct", "is for rules per user_type and device_type")
	}
	known := map[string]bool{}
	for i, s := range r.SegmentMax {
		if known[s.Segment] && s.Segment != "" {
			ps.add(fmt.Sprintf("%ssegment_max[%d].segment", at, i), "is in the list already")
		}
		known[s.Segment] = true
	}
}

// checkLogged holds a rule against what Cassandra can count.
func (r *Rule) checkLogged(ps *Problems, at string) {
	switch {
	case r.Algorithm == "sliding_counter":
		ps.add(at+"algorithm", "must not be sliding_counter for a rule per device_type in Cassandra")
	case r.Calendar != "" && r.Calendar != "day":
		ps.add(at+"calendar", "must be day for a rule per device_type in Cassandra")
	case r.Window > longestInCassandra:
		ps.add(at+"window", "must be at most %v for a rule per device_type in Cassandra", longestInCassandra)
	}
}

// checkMatches: what a rule is about must exist, or it would be about nothing.
func (c *Config) checkMatches(ps *Problems, r *Rule, at string) {
	lanes, apps, priorities := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range c.Lanes {
		lanes[c.Lanes[i].Name] = true
	}
	for i := range c.Apps {
		apps[c.Apps[i].Name] = true
	}
	for p := push.Bulk; p <= push.Critical; p++ {
		priorities[p.String()] = true
	}
	channels := map[string]bool{push.ChannelInbox: true}
	for p := range push.Platforms {
		channels[p.Channel()] = true
	}
	for _, list := range []struct {
		key, what string
		names     []string
		known     map[string]bool
	}{
		{"lanes", "lane", r.Lanes, lanes}, {"apps", "app", r.Apps, apps},
		{"priorities", "priority", r.Priorities, priorities}, {"channels", "channel", r.Channels, channels},
	} {
		for n, name := range list.names {
			if len(list.known) > 0 && !list.known[name] {
				ps.add(fmt.Sprintf("%s%s[%d]", at, list.key, n), "there is no %s %q", list.what, name)
			}
		}
	}
}

// plain reports whether states of version 1 can carry the rule.
func (r *Rule) plain() bool {
	return (r.Per == "user" || r.Per == "user_type") && (r.Algorithm == "" || r.Algorithm == "sliding_log") && r.Over != "defer" &&
		len(r.Lanes)+len(r.Channels)+len(r.Apps)+len(r.Priorities)+len(r.Segments)+len(r.SegmentMax)+len(r.Distinct) == 0 &&
		!r.PerApp && !r.CountCritical && !r.Personal
}
