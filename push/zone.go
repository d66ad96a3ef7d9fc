package push

import (
	"errors"
	"regexp"
	"time"
	_ "time/tzdata" // a zone must mean the same on a machine without a time zone database
)

// zoneName is what the names of IANA's time zones look like. Other files in a
// system's zone folder ("localtime", "right/UTC") begin with a small letter.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$`)

// maxZone is more than the longest name of a zone, in bytes.
const maxZone = 64

// ZoneLike reports whether name could be the name of a time zone: databases of
// different years do not have the same ones.
func ZoneLike(name string) bool {
	return len(name) <= maxZone && zoneName.MatchString(name) && name != "Local"
}

// LoadZone finds a time zone by its IANA name ("Europe/Berlin"). It reads the
// database at every call. The error does not quote the name.
func LoadZone(name string) (*time.Location, error) {
	if ZoneLike(name) {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, errors.New("not the IANA name of a time zone, such as Europe/Berlin")
}

// CountryLike reports whether s could be a code of ISO 3166-1 alpha-2. Which ones
// are in use changes.
func CountryLike(s string) bool {
	return len(s) == 2 && s[0] >= 'A' && s[0] <= 'Z' && s[1] >= 'A' && s[1] <= 'Z'
}
