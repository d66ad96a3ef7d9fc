package state

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/pushfleet/pushfleet/users/record"
)

// Version is the field v of o:{s}: the build, and a random number of its latest
// write, never 0. A counter would not do: after a failover that lost writes it
// would reach the same number again, for another state. The zero value means
// that the shard does not exist.
type Version struct {
	Build uint64 // one filling of the shard from nothing
	Write uint64
}

// Begin is the version of a new build.
func Begin() Version { return Version{Build: random()}.Next() }

// Next is the version after another write.
func (v Version) Next() Version {
	for {
		if next := (Version{v.Build, random()}); next.Write != 0 && next != v {
			return next
		}
	}
}

func (v Version) String() string {
	if v == (Version{}) {
		return ""
	}
	return FormatBuild(v.Build) + "." + strconv.FormatUint(v.Write, 10)
}

func parseVersion(s string) (Version, error) {
	build, write, ok := strings.Cut(s, ".")
	if ok {
		b, err := ParseBuild(build)
		n, err2 := strconv.ParseUint(write, 10, 64)
		if err == nil && err2 == nil && n > 0 {
			return Version{b, n}, nil
		}
	}
	return Version{}, fmt.Errorf("version of a shard: %w", record.ErrVersion)
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(b[:])
}

// FormatBuild is a build as an epoch marker has it: 16 hex digits.
func FormatBuild(build uint64) string { return fmt.Sprintf("%016x", build) }

// ParseBuild reads an epoch marker. Its error wraps record.ErrVersion.
func ParseBuild(s string) (uint64, error) {
	build, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 {
		return 0, fmt.Errorf("epoch marker: %w", record.ErrVersion)
	}
	return build, nil
}
