package quiet

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/push"
)

const weekMinutes = 7 * push.MinutesOfDay

// week is the naive model: a mark for each minute that a wall clock shows in a week,
// from Sunday on. It is walked from each beginning to the next end.
func week(hours []push.QuietHours) (quiet [weekMinutes]bool) {
	for _, h := range hours {
		for d := range 7 {
			if h.Days != 0 && h.Days&(1<<d) == 0 {
				continue
			}
			at := d*push.MinutesOfDay + int(h.From)
			for n := 0; n == 0 || at%push.MinutesOfDay != int(h.To); n++ {
				quiet[at%weekMinutes] = true
				at++
			}
		}
	}
	return quiet
}

// shows is the minute of the week that the clock shows.
func shows(t time.Time) int {
	return int(t.Weekday())*push.MinutesOfDay + t.Hour()*60 + t.Minute()
}

func clock(s string) push.Clock {
	c, ok := push.ParseClock(s)
	if !ok {
		panic(s)
	}
	return c
}

func hours(from, to string, days ...string) push.QuietHours {
	d, ok := push.ParseWeekdays(days)
	if !ok {
		panic(fmt.Sprint(days))
	}
	return push.QuietHours{From: clock(from), To: clock(to), Days: d}
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := push.LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func user(zone string, hours ...push.QuietHours) *push.User {
	return &push.User{Profile: push.Profile{Zone: zone}, Preferences: push.Preferences{Quiet: hours}}
}

var ordinary = &push.Message{Type: "news", Priority: push.Medium}

// Minute by minute through a year, in zones that change by an hour, by half an hour,
// in the south, at midnight, and not at all: what is quiet is what the model marks, and
// the end is its next minute without a mark.
func TestAYearMinuteByMinute(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Africa/Cairo", "Asia/Kathmandu"} {
		z := zone(t, name)
		p := New(Options{Default: time.UTC})
		for _, of := range [][]push.QuietHours{
			{hours("22:00", "07:00")},
			{hours("23:30", "00:30", "thu", "sat"), hours("02:10", "02:40"), hours("01:45", "02:15", "sun"), hours("00:00", "00:00", "fri")},
		} {
			model, u := week(of), user(name, of...)
			from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			next := from.AddDate(1, 0, 9) // the first instant from t on that is not quiet
			for t0 := next; !t0.Before(from); t0 = t0.Add(-time.Minute) {
				marked := model[shows(t0.In(z))]
				if !marked {
					next = t0
				}
				if !t0.Before(from.AddDate(1, 0, 0)) {
					continue
				}
				for _, now := range []time.Time{t0, t0.Add(59*time.Second + 999*time.Millisecond)} {
					d := p.Decide(u, ordinary, now, now.AddDate(0, 0, 9))
					if d.Clock != UsersClock || (d.Action == Hold) != marked || marked && !d.Until.Equal(next) {
						t.Fatalf("%s, %v: %+v, want quiet %v until %v", name, now.In(z), d, marked, next.In(z))
					}
				}
			}
		}
	}
}

// Whatever hours a user has: the end is not quiet, everything before it is, and what
// has no end is quiet as far as was asked.
func TestTheEndIsNotQuiet(t *testing.T) {
	names := []string{"UTC", "America/Havana", "Asia/Gaza", "Pacific/Chatham", "Africa/Casablanca", "America/St_Johns"}
	of := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) push.QuietHours {
		at := rapid.OneOf(rapid.IntRange(0, push.MinutesOfDay-1), rapid.SampledFrom([]int{0, 1, 59, 60, 120, 150, 180, 1439}))
		return push.QuietHours{From: push.Clock(at.Draw(t, "from")), To: push.Clock(at.Draw(t, "to")), Days: push.Weekdays(rapid.IntRange(0, 127).Draw(t, "days"))}
	}), 1, 12)
	p := New(Options{Default: time.UTC})
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "zone")
		z, err := push.LoadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		quiet := of.Draw(t, "hours")
		model := week(quiet)
		now := time.Unix(rapid.Int64Range(1_767_225_600, 1_830_297_600).Draw(t, "now"), 0)
		latest := now.Add(time.Duration(rapid.IntRange(0, 20*24*60).Draw(t, "minutes")) * time.Minute)
		d := p.Decide(user(name, quiet...), ordinary, now, latest)
		if got := d.Action == Hold; got != model[shows(now.In(z))] {
			t.Fatalf("%v is quiet: %v", now.In(z), got)
		}
		if d.Action == Send {
			return
		}
		until := d.Until
		if until.IsZero() {
			until = latest
		} else if model[shows(until.In(z))] || until.After(latest) {
			t.Fatalf("%v until %v, which is quiet or after %v", now.In(z), until.In(z), latest)
		}
		for at := now; at.Before(until); at = at.Add(time.Minute) {
			if !model[shows(at.In(z))] {
				t.Fatalf("%v until %v, but %v is not quiet", now.In(z), until.In(z), at.In(z))
			}
		}
	})
}

// Nights in which the clock changes, by hand.
func TestClockChanges(t *testing.T) {
	utc := func(s string) time.Time {
		at, err := time.Parse("2006-01-02 15:04", s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	p := New(Options{Default: time.UTC})
	for _, tt := range []struct {
		why, zone  string
		quiet      push.QuietHours
		now, until string // UTC; no until: not quiet
	}{
		{"a short night", "Europe/Berlin", hours("22:00", "07:00"), "2026-03-28 21:00", "2026-03-29 05:00"},
		{"a long night", "Europe/Berlin", hours("22:00", "07:00"), "2026-10-24 20:00", "2026-10-25 06:00"},
		{"the end is left out", "Europe/Berlin", hours("22:00", "02:30"), "2026-03-28 21:00", "2026-03-29 01:00"},
		{"all of it is left out", "Europe/Berlin", hours("02:10", "02:50"), "2026-03-29 01:00", ""},
		{"the end comes twice: the first", "Europe/Berlin", hours("22:00", "02:30"), "2026-10-24 23:00", "2026-10-25 00:30"},
		{"the end comes twice: in between", "Europe/Berlin", hours("22:00", "02:30"), "2026-10-25 00:30", ""},
		{"the end comes twice: the second", "Europe/Berlin", hours("22:00", "02:30"), "2026-10-25 01:00", "2026-10-25 01:30"},
		{"half an hour is left out", "Australia/Lord_Howe", hours("01:00", "02:15"), "2026-10-03 15:00", "2026-10-03 15:30"},
		{"midnight is left out, and the end with it", "Africa/Cairo", hours("20:00", "00:30", "thu"), "2026-04-23 20:00", "2026-04-23 22:00"},
		{"a day that begins at 01:00 is that day", "Africa/Cairo", hours("00:00", "02:00", "fri"), "2026-04-23 22:00", "2026-04-23 23:00"},
		{"the last hour comes twice", "Africa/Cairo", hours("23:00", "01:00", "thu"), "2026-10-29 20:15", "2026-10-29 23:00"},
		{"a whole day of 23 hours", "Europe/Berlin", hours("00:00", "00:00", "sun"), "2026-03-28 23:00", "2026-03-29 22:00"},
		{"a whole day of 25 hours", "Europe/Berlin", hours("00:00", "00:00", "sun"), "2026-10-24 22:00", "2026-10-25 23:00"},
		{"a date that a country left out", "Pacific/Apia", hours("22:00", "07:00", "thu"), "2011-12-30 09:00", "2011-12-30 10:00"},
	} {
		d := p.Decide(user(tt.zone, tt.quiet), ordinary, utc(tt.now), utc(tt.now).AddDate(0, 0, 9))
		if tt.until == "" && d.Action != Send || tt.until != "" && (d.Action != Hold || !d.Until.Equal(utc(tt.until))) {
			t.Errorf("%s: %+v", tt.why, d)
		}
	}
}

// Who is asked: the hours of the type, the fleet's for promotional types by country, in
// the best zone that is known; what is chosen for the type is done.
func TestPolicy(t *testing.T) {
	berlin, auckland := zone(t, "Europe/Berlin"), zone(t, "Pacific/Auckland")
	german := hours("20:00", "09:00")
	digest := hours("13:00", "14:00")
	digest.Types = []string{"digest"}
	p := New(Options{
		Default:     zone(t, "Asia/Kolkata"),
		Promotional: map[string]bool{"promo": true, "digest": true},
		Drop:        map[string]bool{"flash": true, "digest": true},
		Countries: map[string]Country{
			"DE":      {Zone: berlin, Hours: []push.QuietHours{german, digest}},
			"NZ":      {Zone: auckland},
			"FR":      {Hours: []push.QuietHours{german}},
			Elsewhere: {Hours: []push.QuietHours{hours("23:00", "05:00")}},
		},
	})
	now := time.Date(2026, 6, 10, 22, 30, 0, 0, time.UTC) // 00:30 in Berlin, 10:30 in Auckland, 04:00 in Kolkata
	night := hours("00:00", "06:00")
	news := night
	news.Types = []string{"news", "flash"}
	for _, tt := range []struct {
		why           string
		hours         []push.QuietHours
		zone, country string
		messageType   string
		priority      push.Priority
		at            time.Duration
		action        Action
		clock         Clock
		until         time.Duration // from midnight UTC of the 11th
	}{
		{why: "nothing said", messageType: "news"},
		{why: "the user's hours", hours: []push.QuietHours{night}, zone: "Europe/Berlin", messageType: "news", action: Hold, until: 4 * time.Hour},
		{why: "critical", hours: []push.QuietHours{night}, zone: "Europe/Berlin", messageType: "promo", priority: push.Critical},
		{why: "high is not critical", hours: []push.QuietHours{night}, zone: "Europe/Berlin", messageType: "news", priority: push.High, action: Hold, until: 4 * time.Hour},
		{why: "hours of this type", hours: []push.QuietHours{news}, zone: "Europe/Berlin", messageType: "news", action: Hold, until: 4 * time.Hour},
		{why: "hours of other types", hours: []push.QuietHours{news}, zone: "Europe/Berlin", messageType: "order"},
		{why: "a type that is dropped", hours: []push.QuietHours{news}, zone: "Europe/Berlin", messageType: "flash", action: Drop, until: 4 * time.Hour},
		{why: "it is day where the user is", hours: []push.QuietHours{night}, zone: "Pacific/Auckland", country: "DE", messageType: "news"},
		{why: "the zone is not known, the country's is", hours: []push.QuietHours{night}, country: "DE", messageType: "news", action: Hold, clock: CountrysClock, until: 4 * time.Hour},
		{why: "no database has the zone", hours: []push.QuietHours{night}, zone: "Mars/Olympus_Mons", country: "DE", messageType: "news", action: Hold, clock: CountrysClock, until: 4 * time.Hour},
		{why: "it is day in the country", hours: []push.QuietHours{night}, country: "NZ", messageType: "news", clock: CountrysClock},
		{why: "neither is known", hours: []push.QuietHours{night}, messageType: "news", action: Hold, clock: DefaultClock, until: 30 * time.Minute},
		{why: "a country without a zone", hours: []push.QuietHours{night}, country: "FR", messageType: "news", action: Hold, clock: DefaultClock, until: 30 * time.Minute},
		{why: "the country's hours", zone: "Europe/Berlin", country: "DE", messageType: "promo", action: Hold, until: 7 * time.Hour},
		{why: "the longer of both count", hours: []push.QuietHours{night}, zone: "Europe/Berlin", country: "DE", messageType: "promo", action: Hold, until: 7 * time.Hour},
		{why: "not for other types", zone: "Europe/Berlin", country: "DE", messageType: "order"},
		{why: "the country's hours by the user's clock", zone: "Pacific/Auckland", country: "DE", messageType: "promo"},
		{why: "hours of the country for one type", zone: "Europe/Berlin", country: "DE", messageType: "digest", at: 13 * time.Hour, action: Drop, until: 12 * time.Hour},
		{why: "and not for another", zone: "Europe/Berlin", country: "DE", messageType: "promo", at: 13 * time.Hour},
		{why: "a listed country without hours", zone: "Europe/Berlin", country: "NZ", messageType: "promo"},
		{why: "a country that is not listed", zone: "Europe/Berlin", country: "AT", messageType: "promo", action: Hold, until: 3 * time.Hour},
		{why: "no country", messageType: "promo", action: Hold, clock: DefaultClock, until: -30 * time.Minute},
	} {
		u := user(tt.zone, tt.hours...)
		u.Profile.Country = tt.country
		m := &push.Message{Type: tt.messageType, Priority: max(tt.priority, push.Bulk)}
		at := now.Add(tt.at)
		d := p.Decide(u, m, at, at.AddDate(0, 0, 1))
		if d.Action != tt.action || d.Clock != tt.clock || (d.Action != Send) != !d.Until.IsZero() ||
			d.Action != Send && d.Until.Sub(time.Date(2026, 6, 11, 0, 0, 0, 0, time.UTC)) != tt.until {
			t.Errorf("%s: %+v", tt.why, d)
		}
	}
}

// Nobody is asked to wait longer than the message is worth anything, or without end.
func TestHoursWithoutEnd(t *testing.T) {
	p := New(Options{Default: time.UTC})
	now := time.Date(2026, 6, 10, 23, 0, 0, 0, time.UTC)
	for why, tt := range map[string]struct {
		quiet  push.QuietHours
		latest time.Duration
		until  time.Duration
	}{
		"the end is soon enough":  {hours("22:00", "07:00"), 8 * time.Hour, 8 * time.Hour},
		"a nanosecond too late":   {hours("22:00", "07:00"), 8*time.Hour - 1, 0},
		"always":                  {hours("07:00", "07:00"), 30 * 24 * time.Hour, 0},
		"expired":                 {hours("22:00", "07:00"), -time.Hour, 0},
		"always but a quarter":    {hours("22:15", "22:00"), 30 * 24 * time.Hour, 23 * time.Hour},
		"always but on Saturdays": {hours("07:00", "07:00", "sun", "mon", "tue", "wed", "thu", "sat"), 30 * 24 * time.Hour, 32 * time.Hour},
	} {
		d := p.Decide(user("UTC", tt.quiet), ordinary, now, now.Add(tt.latest))
		want := time.Time{}
		if tt.until > 0 {
			want = now.Add(tt.until)
		}
		if d.Action != Hold || !d.Until.Equal(want) {
			t.Errorf("%s: %+v, want until %v", why, d, want)
		}
	}
}

// What was read from this machine's clock, which somebody may set meanwhile, becomes a
// time of the wall's alone.
func TestTheEndIsATimeOfTheWall(t *testing.T) {
	now := time.Now()
	d := New(Options{Default: time.UTC}).Decide(user("UTC", hours("00:00", "00:00", "sun", "mon", "tue"), hours("00:00", "00:00", "wed", "thu", "fri", "sat")), ordinary, now, now.AddDate(0, 0, 1))
	if d.Action != Hold || !d.Until.IsZero() {
		t.Fatalf("always: %+v", d)
	}
	shown := push.Clock(now.UTC().Hour()*60 + now.UTC().Minute())
	end := (shown + 2) % push.MinutesOfDay
	d = New(Options{Default: time.UTC}).Decide(user("UTC", push.QuietHours{From: shown, To: end}), ordinary, now, now.AddDate(0, 0, 1))
	if d.Action != Hold || d.Until.String() != d.Until.Round(0).String() {
		t.Errorf("%+v", d)
	}
}

// Names of zones that users make up fill no memory, and those that exist are found
// whatever was asked before.
func TestMadeUpZones(t *testing.T) {
	var z zones
	for i := range 2 * maxZones {
		if z.find(fmt.Sprintf("Made/Up_%d", i)) != nil {
			t.Fatal("found")
		}
	}
	if len(z.found) != maxZones {
		t.Errorf("%d names are remembered", len(z.found))
	}
	if got := z.find("Europe/Berlin"); got == nil || z.find("Europe/Berlin") != got || len(z.found) != maxZones+1 {
		t.Errorf("%v", got)
	}
	if z.find("../etc/passwd") != nil || len(z.found) != maxZones+1 {
		t.Error("what is no name was looked for")
	}
}

// BenchmarkDecide: most users have no quiet hours at all.
func BenchmarkDecide(b *testing.B) {
	p := New(Options{Default: time.UTC})
	now := time.Date(2026, 6, 10, 23, 0, 0, 0, time.UTC)
	for name, u := range map[string]*push.User{"none": user(""), "day": user("Europe/Berlin", hours("13:00", "14:00")), "night": user("Europe/Berlin", hours("22:00", "07:00"))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(u, ordinary, now, now.Add(24*time.Hour))
			}
		})
	}
}
