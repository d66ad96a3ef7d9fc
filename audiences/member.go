package audiences

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Bounds.
const (
	MaxText = 128    // bytes of a user's id, and of an app's name
	MaxPage = 10_000 // members
)

// Use says that a device of an app was registered for a user.
type Use struct {
	App, User string
	At        time.Time // when the record that says so was written
}

// Member is a user of an app.
type Member struct {
	User  string
	Since time.Time // when it was noted here, in whole milliseconds, by the clock of who noted it
}

// Usable reports whether a text can be kept as a user's id or an app's name: 1 to MaxText
// bytes of UTF-8.
func Usable(text string) bool {
	return text != "" && len(text) <= MaxText && utf8.ValidString(text)
}

func checkPage(first, end, limit, slices int) error {
	switch {
	case first < 0 || end > slices || first > end:
		return fmt.Errorf("audiences: slices from %d up to %d, want some of %d", first, end, slices)
	case limit < 1 || limit > MaxPage:
		return fmt.Errorf("audiences: a page of %d, want 1 to %d", limit, MaxPage)
	}
	return nil
}

func checkNames(app, user string) error {
	if !Usable(app) || !Usable(user) {
		return fmt.Errorf("audiences: an app or a user is not of 1 to %d bytes of UTF-8", MaxText)
	}
	return nil
}

// written is the timestamp of a use's row in microseconds since 1970: that of its record,
// unless that has none or is ahead.
func (u *Use) written(now time.Time) int64 {
	if u.At.UnixMilli() <= 0 || u.At.After(now) {
		return now.UnixMicro()
	}
	return u.At.UnixMicro()
}
