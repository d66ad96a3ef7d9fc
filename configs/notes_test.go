package configs

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// By default nobody can bypass the limits with priority critical. A note says so,
// and another one if everybody can.
func TestCriticalSendersAreTold(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Dedupe.Window = 24 * time.Hour
	for _, l := range c.Lanes {
		if may := l.MayBeCritical(); may == nil || len(may) > 0 {
			t.Errorf("lane %s lets %v use priority critical by default, want nobody", l.Name, may)
		}
	}
	c.Lanes[1].CriticalSenders = []string{"*"}
	c.Lanes[2].CriticalSenders, c.Lanes[2].IgnoreBlocked = []string{"auth"}, true
	c.Countries = []Country{{Country: "DE", Hours: []Hours{{From: "20:00", To: "08:00"}}}, {Country: "NZ", Zone: "Pacific/Auckland"}}
	var got []string
	for _, n := range c.Notes() {
		got = append(got, n.String())
	}
	want := []string{
		"lanes[0].critical_senders: is empty: notifications with priority critical are sent with high, whoever the sender is",
		"lanes[1].critical_senders: allows every sender: any message can bypass all limits, opt-outs and quiet hours with priority critical",
		"lanes[2].ignore_blocked: sends critical notifications to users who are blocked, and to named devices while users' records cannot be read",
		"countries[0].hours: apply to nothing while preferences.promotional_types is empty",
	}
	if !slices.Equal(got, want) {
		t.Errorf("notes are\n%q, want\n%q", got, want)
	}
}

// A lane that sends what is older than what the filters remember is told, by
// name, and no other.
func TestShortMemoryIsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		window time.Duration
		ages   [3]time.Duration
		want   string // the lanes named; empty = no note
	}{
		{6 * time.Hour, [3]time.Duration{10 * time.Minute, 24 * time.Hour, 24 * time.Hour}, "of transactional, promotional:"},
		{6 * time.Hour, [3]time.Duration{6*time.Hour + time.Second, time.Hour, time.Hour}, "of critical:"},
		{24 * time.Hour, [3]time.Duration{time.Minute, 24 * time.Hour, 24 * time.Hour}, ""},
	} {
		c := Default()
		c.Dedupe.Window = tt.window
		for i, age := range tt.ages {
			c.Lanes[i].GreatestAge = age
		}
		notes := c.ShortMemory()
		if tt.want == "" && len(notes) > 0 || tt.want != "" && (len(notes) != 1 || !strings.Contains(notes[0].String(), tt.want)) {
			t.Errorf("window %v, ages %v: %v, want %q", tt.window, tt.ages, notes, tt.want)
		}
		if !slices.Equal(notes, slices.DeleteFunc(c.Notes(), func(n Note) bool { return n.Path != "dedupe.window" })) {
			t.Error("config check does not tell it")
		}
	}
}
