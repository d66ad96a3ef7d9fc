package push

import (
	"slices"
	"testing"
	"time"
)

// Every minute of a day is read as it is written, and nothing else is a time of day.
func TestClock(t *testing.T) {
	for c := range Clock(MinutesOfDay) {
		if got, ok := ParseClock(c.String()); got != c || !ok || len(c.String()) != 5 {
			t.Fatalf("%d is %q, which is %d, %v", c, c.String(), got, ok)
		}
	}
	for _, s := range []string{"", "7:00", "07:0", "24:00", "07:60", "99:99", "07.00", "-7:00", "07:00:00", " 7:00", "07:0a", "+7:00", "٠٧:00"} {
		if c, ok := ParseClock(s); ok {
			t.Errorf("%q is %v", s, c)
		}
	}
}

// Days are read as they are named, in any order, and each has its own bit.
func TestWeekdays(t *testing.T) {
	for w := range EveryDay + 1 {
		names := w.Names()
		slices.Reverse(names)
		if got, ok := ParseWeekdays(names); got != w || !ok {
			t.Errorf("%b is %v, which is %b, %v", w, names, got, ok)
		}
	}
	if w, ok := ParseWeekdays([]string{"sun", "sat", "sun"}); w != 1|64 || !ok || !w.Has(time.Sunday) || !w.Has(time.Saturday) || w.Has(time.Monday) {
		t.Errorf("a weekend is %b, %v", w, ok)
	}
	for _, names := range [][]string{{"Sun"}, {"sunday"}, {""}, {"mon", "x"}} {
		if _, ok := ParseWeekdays(names); ok {
			t.Errorf("%q are days", names)
		}
	}
}

// Zones are found by their IANA names, whatever files the machine has.
func TestZones(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"} {
		if zone, err := LoadZone(name); err != nil || zone.String() != name {
			t.Errorf("%s: %v, %v", name, zone, err)
		}
	}
	for _, name := range []string{"", "Local", "localtime", "right/UTC", "Europe", "Europe/", "/UTC", "../UTC", "Europe/../UTC", "Mars/Olympus_Mons", "UTC\x00", "Europe/Berlin/x/y"} {
		if zone, err := LoadZone(name); err == nil {
			t.Errorf("%q is %v", name, zone)
		}
	}
}
