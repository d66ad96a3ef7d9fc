package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Note is something that a valid configuration says and that its owner should
// have meant. It names the key and never a secret.
type Note struct {
	Path    string // of the key: "lanes[0].critical_senders"
	Message string
}

// String gives the key and what there is to say of it.
func (n Note) String() string { return n.Path + ": " + n.Message }

// Notes are what `pushworker config check` tells of a valid configuration.
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

// ShortMemory tells of lanes that still send what is older than what the dedupe
// filters remember for certain. The start of a worker tells it too.
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
