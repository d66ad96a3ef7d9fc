package segments

import (
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Numbering says where the numbers of a group's users come from.
type Numbering string

// The numberings.
const (
	ByRecord Numbering = "record" // the number in the user's record
	ByID     Numbering = "id"     // the user id itself, a decimal number without leading zeros
	// ByHash is the low 32 bits of xxhash64 of the user id. Different users can
	// have one number, so it is not possible in exclusive groups.
	ByHash Numbering = "hash"
)

// errHashed says why exclusive groups take no hashes.
var errHashed = errors.New("hashed ids are not possible in an exclusive group: " +
	"of 270 million ids, 16 million have the 32-bit hash of another one, and would be in its segment; " +
	"give users a number in their record, or use numeric ids")

func (n Numbering) check(exclusive bool) error {
	switch n {
	case ByRecord, ByID:
		return nil
	case ByHash:
		if exclusive {
			return errHashed
		}
		return nil
	}
	return fmt.Errorf("unknown numbering %q: want %s, %s or %s", string(n), ByRecord, ByID, ByHash)
}

// Set implements pflag.Value.
func (n *Numbering) Set(s string) error {
	v := Numbering(s)
	if err := v.check(false); err != nil {
		return fmt.Errorf("want %s, %s or %s", ByRecord, ByID, ByHash)
	}
	*n = v
	return nil
}

// String implements pflag.Value.
func (n *Numbering) String() string { return string(*n) }

// Type implements pflag.Value.
func (*Numbering) Type() string { return "numbering" }

// Of is the number of a user: of the record's number, if there is one, and the
// id, what the numbering says. ok is false if the user has no number. It does not
// allocate.
func (n Numbering) Of(id string, record uint32, recorded bool) (number uint32, ok bool) {
	switch n {
	case ByRecord:
		return record, recorded
	case ByID:
		number, err := parseNumber(id)
		return number, err == nil
	case ByHash:
		return uint32(xxhash.Sum64String(id)), true
	}
	return 0, false
}

// The rules that a number breaks. Their text never has the number itself: the
// line may be of a wrong file and contain anything.
var (
	errNoNumber    = errors.New("not a decimal number from 0 to 4294967295")
	errLeadingZero = errors.New("a number with leading zeros; two ids would be one user")
	errWide        = errors.New("a number over 4294967295: user numbers have 32 bits; give users with longer ids a number in their record")
)

// ParseNumber parses a user number: decimal digits without sign and leading
// zeros. An error does not repeat the text.
func ParseNumber(s string) (uint32, error) { return parseNumber(s) }

func parseNumber[T string | []byte](s T) (uint32, error) {
	if len(s) == 0 {
		return 0, errNoNumber
	}
	n, wide := uint64(0), false
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, errNoNumber
		}
		n = 10*n + uint64(c)
		if wide = wide || n > MaxNumber; wide {
			n = 0
		}
	}
	switch {
	case s[0] == '0' && len(s) > 1:
		return 0, errLeadingZero
	case wide:
		return 0, errWide
	}
	return uint32(n), nil
}
