package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Note is something unusual in a valid configuration that should be intended.
// It names the key and never a secret.
type Note struct {
	Path    string // of the key: "lanes[0].critical_senders"
	Message string
}

// String gives the key and the note.
func (n Note) String() string { return n.Path + ": " + n.Message }

// Notes are what `pushworker config check` prints about a valid configuration.
func (c *Config) Notes() []Note {
	notes := slices.Concat(c.Insecure(), c.ShortMemory(), c.aboutNobody())
	for i, l := range c.Lanes {
		if l.IgnoreBlocked {
			notes = append(notes, Note{"lanes[" + strconv.Itoa(i) + "].ignore_blocked", "sends critical notifications to users who are blocked, and to named devices while users' records cannot be read"})
		}
		at := "lanes[" + strconv.Itoa(i) + "].critical_senders"
		switch {
		case len(l.CriticalSenders) == 0:
			notes = append(notes, Note{at, "is empty: notifications with priority critical are sent with high, whoever the sender is"})
		case slices.Contains(l.CriticalSenders, everySender):
			notes = append(notes, Note{at, "allows every sender: any message can bypass all limits, opt-outs and quiet hours with priority critical"})
		}
	}
	for i, country := range c.Countries {
		if len(country.Hours) > 0 && len(c.Preferences.PromotionalTypes) == 0 {
			notes = append(notes, Note{"countries[" + strconv.Itoa(i) + "].hours", "apply to nothing while preferences.promotional_types is empty"})
		}
	}
	return notes
}

// ShortMemory names lanes that still send notifications older than the dedupe
// filters certainly remember. A worker also logs it at its start.
func (c *Config) ShortMemory() []Note {
	var lanes []string
	for _, l := range c.Lanes {
		if l.GreatestAge > c.Dedupe.Window {
			lanes = append(lanes, l.Name)
		}
	}
	if lanes == nil {
		return nil
	}
	return []Note{{"dedupe.window", fmt.Sprintf("%s is less than the greatest_age of %s: each notification that waits longer costs a confirm read in Cassandra; "+
		"an id that is not a UUIDv7 and is produced again after that time is sent again", c.Dedupe.Window, strings.Join(lanes, ", "))}}
}
