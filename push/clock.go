package push

import (
	"fmt"
	"strings"
	"time"
)

// Clock is a time of day on somebody's clock, in minutes since midnight: 0 to 1439.
type Clock uint16

// MinutesOfDay is how many there are on a day without a clock change.
const MinutesOfDay = 24 * 60

// ParseClock reads "22:00": two digits each, 00:00 to 23:59.
func ParseClock(s string) (c Clock, ok bool) {
	digit := func(i int) Clock { return Clock(s[i] - '0') }
	if len(s) != 5 || s[2] != ':' || strings.Trim(s[:2]+s[3:], "0123456789") != "" {
		return 0, false
	}
	hour, minute := 10*digit(0)+digit(1), 10*digit(3)+digit(4)
	return 60*hour + minute, hour < 24 && minute < 60
}

// String is what ParseClock reads.
func (c Clock) String() string { return fmt.Sprintf("%02d:%02d", c/60, c%60) }

// Weekdays are some days of the week, a bit each: Sunday is 1, Saturday is 64.
type Weekdays uint8

// EveryDay are all seven.
const EveryDay Weekdays = 1<<7 - 1

var weekdayNames = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// ParseWeekdays reads the names of days: sun, mon, tue, wed, thu, fri, sat.
func ParseWeekdays(names []string) (w Weekdays, ok bool) {
next:
	for _, name := range names {
		for day, n := range weekdayNames {
			if n == name {
				w |= 1 << day
				continue next
			}
		}
		return 0, false
	}
	return w, true
}

// Has reports whether d is one of them.
func (w Weekdays) Has(d time.Weekday) bool { return w>>d&1 != 0 }

// Names are what ParseWeekdays reads, from Monday on.
func (w Weekdays) Names() (names []string) {
	for i := range weekdayNames {
		if day := time.Weekday((i + 1) % len(weekdayNames)); w.Has(day) {
			names = append(names, weekdayNames[day])
		}
	}
	return names
}
