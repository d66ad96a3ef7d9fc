package main

import (
	"errors"
	"fmt"
	"time"
)

// moment is a flag that names a time: RFC 3339, a day (UTC), or a duration
// before now.
type moment struct {
	time.Time
	now func() time.Time
}

// Set implements pflag.Value.
func (m *moment) Set(s string) error {
	now := time.Now
	if m.now != nil {
		now = m.now
	}
	if d, err := time.ParseDuration(s); err == nil {
		if d < 0 {
			return errors.New("want a time, or a duration before now, without a sign")
		}
		m.Time = now().Add(-d)
		return nil
	}
	for _, layout := range [...]string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("want a time like 2026-11-21T10:00:00Z, a day like 2026-11-21 (UTC), or a duration before now like 90m")
}

func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.UTC().Format(time.RFC3339)
}

// Type implements pflag.Value.
func (*moment) Type() string { return "time" }
