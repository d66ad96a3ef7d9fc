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
	notes := slices.Concat(c.Insecure(), c.ShortMemory())
	for i, l := range c.Lanes {
		at := "lanes[" + strconv.Itoa(i) + "].critical_senders"
		switch {
		case len(l.CriticalSenders) == 0:
			notes = append(notes, Note{at, "is empty: what comes with priority critical goes with high, whoever sends it"})
		case slices.Contains(l.CriticalSenders, everySender):
			notes = append(notes, Note{at, "is every sender: one word in a message passes all limits"})
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
	return []Note{{"dedupe.window", fmt.Sprintf("%s is less than the greatest_age of %s: what waits for longer is confirmed in Cassandra, a read each; "+
		"an id that is no UUIDv7, written again in a new record after that, is sent again", c.Dedupe.Window, strings.Join(lanes, ", "))}}
}
