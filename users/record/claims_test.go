package record

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// What cannot be read as claims is said to be so, and nobody's claim is made up.
func TestEntriesOfTheTokenIndex(t *testing.T) {
	cs := Claims{{"ada", 5}, {"bob", 1e12}}
	raw := cs.Encode(7)
	for _, tt := range []struct {
		why  string
		raw  []byte
		want Claims
		err  error
	}{
		{"nothing", nil, nil, nil},
		{"as written", raw, cs, nil},
		{"of another build", cs.Encode(8), nil, nil},
		{"empty", []byte{}, nil, ErrVersion},
		{"of another version", append([]byte{2}, raw[1:]...), nil, ErrVersion},
		{"cut in its head", raw[:headLen-1], nil, ErrCorrupt},
		{"cut behind its head", raw[:headLen], nil, ErrCorrupt},
		{"cut", raw[:len(raw)-1], nil, ErrCorrupt},
		{"with something behind", append(bytes.Clone(raw), 0), nil, ErrCorrupt},
	} {
		if got, err := DecodeClaims(tt.raw, 7); !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, %v", tt.why, got, err)
		}
	}
}
