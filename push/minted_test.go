package push

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// rfcs is the example of RFC 9562, and when it was minted.
const (
	rfcs       = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
	rfcsMillis = 0x017F22E279B0
)

func TestMintedAt(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	if at, ok := MintedAt(uuid.Must(uuid.NewV7()).String()); !ok || at.Before(now) || at.After(now.Add(time.Minute)) {
		t.Errorf("a UUIDv7 of now: %v, %v", at, ok)
	}
	for _, tt := range []struct {
		why, id string
		ms      int64
	}{
		{"the example of RFC 9562", rfcs, rfcsMillis},
		{"capitals", strings.ToUpper(rfcs), rfcsMillis},
		{"the first moment", "00000000-0000-7000-8000-000000000000", 0},
		{"the last one, and the greatest digits", "ffffffff-ffff-7fff-bfff-ffffffffffff", 1<<48 - 1},
		{"another digit in each place of the time", "12345678-9abc-7000-9000-000000000000", 0x123456789abc},
	} {
		ms, ok := MintedMillis(tt.id)
		if at, also := MintedAt(tt.id); !ok || !also || ms != tt.ms || !at.Equal(time.UnixMilli(tt.ms)) {
			t.Errorf("%s: %s carries %#x, %v and %v, %v", tt.why, tt.id, ms, ok, at, also)
		}
	}
}

func TestOtherIDsCarryNoTime(t *testing.T) {
	others := []struct{ why, id string }{
		{"empty", ""}, {"a name", "order-17"}, {"too short", rfcs[:35]}, {"too long", rfcs + "0"},
		{"without its first character", rfcs[1:]},
		{"version 4", strings.Replace(rfcs, "-7c", "-4c", 1)},
		{"a variant below RFC 9562's", strings.Replace(rfcs, "-98", "-78", 1)},
		{"a variant above it", strings.Replace(rfcs, "-98", "-c8", 1)},
		{"no dashes", strings.ReplaceAll(rfcs, "-", "0")},
		{"no dashes, shorter", strings.ReplaceAll(rfcs, "-", "")},
		{"braces", "{" + rfcs[:34] + "}"},
		{"a name for UUIDs", "urn:uuid:" + rfcs},
	}
	for i := range rfcs {
		for _, c := range []byte{'x', 'g', 'G', '/', ':', '@', '`', 0xff, 0} {
			others = append(others, struct{ why, id string }{"one character is another", rfcs[:i] + string([]byte{c}) + rfcs[i+1:]})
		}
	}
	for _, tt := range others {
		if at, ok := MintedAt(tt.id); ok || !at.IsZero() {
			t.Errorf("%s: %q carries %v, %v", tt.why, tt.id, at, ok)
		}
	}
}

// The library reads more forms than this one, and none of ours otherwise.
func FuzzMintedAt(f *testing.F) {
	f.Add(rfcs)
	f.Add(strings.ToUpper(rfcs))
	f.Add(strings.Replace(rfcs, "-7c", "-4c", 1))
	f.Fuzz(func(t *testing.T, id string) {
		u, err := uuid.Parse(id)
		want := err == nil && len(id) == 36 && u.Version() == 7 && u.Variant() == uuid.RFC4122
		at, ok := MintedAt(id)
		if ok != want {
			t.Fatalf("%q: %v, but the library says %v", id, ok, want)
		}
		if ok && !at.Equal(time.Unix(u.Time().UnixTime())) {
			t.Errorf("%q: %v, but the library says %v", id, at, time.Unix(u.Time().UnixTime()))
		}
	})
}

// Each id is another: what its digits are must not be foreseeable.
func BenchmarkMintedMillis(b *testing.B) {
	ids := make([]string, 1<<12)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7()).String()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := MintedMillis(ids[i%len(ids)]); !ok {
			b.Fatal(ids[i%len(ids)])
		}
	}
}
