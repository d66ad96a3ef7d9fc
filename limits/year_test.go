package limits

import (
	"fmt"
	"testing"
	"time"
)

// Day by day through a year, in zones that change by an hour, by half an hour, in the
// south at midnight, where midnight is left out, and not at all: what is allowed in the
// first minute of a date fills it up to its last, and the next date begins anew. So it
// is for users and devices, and with the counts of devices in a log.
func TestAYearOfDays(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Africa/Cairo", "Asia/Kathmandu"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := zone(t, name)
			user := Rule{Name: "user", Per: PerUser, Max: 1, Calendar: Day, Algorithm: FixedWindow}
			users, devices, log := alone(t, user), alone(t, deviceDay(1)), logging(t, nil, &tables{}, deviceDay(1))
			asked := 0
			check := func(at time.Time, allowed bool, why string) {
				t.Helper()
				asked++
				ask := func(devices ...Device) *Request {
					return &Request{Owner: "u", ID: fmt.Sprint(asked), Type: "x", Priority: 3, At: at, Zone: z, Devices: devices}
				}
				u, d, l := ask(), ask(Device{Hash: 1}), ask(Device{Hash: 1})
				users(u)
				devices(d)
				decide(t, log, l)
				if u.Allowed != allowed || d.Allowed != allowed || l.Allowed != allowed {
					t.Fatalf("%v, %s: the user's rule says %t, the device's %t and in a log %t, want %t", at.In(z), why, u.Allowed, d.Allowed, l.Allowed, allowed)
				}
			}
			lengths := map[time.Duration]int{}
			// The dates that the clock shows, by the minute.
			end := time.Date(2027, 1, 3, 0, 0, 0, 0, time.UTC)
			var first time.Time // minute of the date at hand
			for at := time.Date(2025, 12, 30, 0, 0, 0, 0, time.UTC); at.Before(end); at = at.Add(time.Minute) {
				if at.In(z).YearDay() == at.Add(-time.Minute).In(z).YearDay() {
					continue
				}
				if !first.IsZero() {
					lengths[at.Sub(first)]++
					check(first, true, "the first minute of a date")
					check(first.Add(time.Minute), false, "the second")
					check(at.Add(-at.Sub(first)/2), false, "the middle")
					check(at.Add(-time.Millisecond), false, "the last moment")
				}
				first = at
			}
			t.Logf("days by their length: %v", lengths)
			if changes := len(lengths) > 1; changes == (name == "Asia/Kathmandu") {
				t.Errorf("days of %v: the clock changes %t", lengths, changes)
			}
		})
	}
}
