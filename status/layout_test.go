package status

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Stored rows are found by these numbers: a change here loses every existing
// status.
func TestBucketNeverChanges(t *testing.T) {
	for _, tt := range []struct {
		why  string
		id   string
		want int64
	}{
		{"a UUIDv7 of 2026-11-21 07:30:00.000", "01a1fd03-14c0-7abc-8def-0123456789ab", 1795246200<<16 | 5},
		{"the same in capitals is another id of the same slice", "01A1FD03-14C0-7ABC-8DEF-0123456789AB", 1795246200<<16 | 8},
		{"the last millisecond of its slice", "01a1fd03-3bcf-7abc-8def-0123456789ab", 1795246200<<16 | 8},
		{"the first of the next", "01a1fd03-3bd0-7abc-8def-0123456789ab", 1795246210<<16 | 7},
		{"the first UUIDv7 there is", "00000000-0000-7000-8000-000000000000", 9},
		{"the last", "ffffffff-ffff-7fff-bfff-ffffffffffff", 281474976710<<16 | 11},
		{"a UUIDv4", "1b4e28ba-2fa1-4d2e-883f-0016d3cca427", -2806262637634175977},
		{"free text", "order-17", -7826627777729365459},
		{"a record without an id", "kafka:abcdefghijklmnopqrstuvwx", -8226419509277107055},
		{"nothing", "", -1205034819632174695},
	} {
		if got := DefaultLayouts().Bucket(tt.id); got != tt.want {
			t.Errorf("%s: Bucket(%q) = %d, want %d", tt.why, tt.id, got, tt.want)
		}
	}
}

// Ids that are no UUIDv7 have partitions of their own.
func TestOtherIDsAreAmongNoSlices(t *testing.T) {
	const good = "01a1fd03-14c0-7abc-8def-0123456789ab"
	if b := DefaultLayouts().Bucket(good); b < 0 {
		t.Fatalf("Bucket(%q) = %d, among no slices", good, b)
	}
	for _, tt := range []struct{ why, id string }{
		{"empty", ""},
		{"a name", "order-17"},
		{"too short", good[:35]},
		{"too long", good + "0"},
		{"version 4", strings.Replace(good, "-7", "-4", 1)},
		{"a variant that is not RFC 9562's", strings.Replace(good, "-8", "-c", 1)},
		{"a variant that is no digit", strings.Replace(good, "-8", "-z", 1)},
		{"no dashes", strings.ReplaceAll(good, "-", "0")},
		{"no first dash", good[:8] + "0" + good[9:]},
		{"no second dash", good[:13] + "0" + good[14:]},
		{"no third dash", good[:18] + "0" + good[19:]},
		{"no last dash", good[:23] + "0" + good[24:]},
		{"a letter past f in the time", "g" + good[1:]},
		{"a letter past f at the end", good[:35] + "g"},
		{"bytes above ASCII", "\xff" + good[1:]},
		{"braces", "{" + good[:34] + "}"},
	} {
		if b := DefaultLayouts().Bucket(tt.id); b >= 0 {
			t.Errorf("%s: Bucket(%q) = %d, among the slices", tt.why, tt.id, b)
		}
	}
}

// A new layout changes nothing for ids that were minted before it.
func TestLayoutsGrowAtTheirEnd(t *testing.T) {
	since := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	old := DefaultLayouts()
	grown := append(DefaultLayouts(), Layout{Since: since, Slice: time.Minute, Shards: 64})
	if err := grown.Validate(); err != nil {
		t.Fatal(err)
	}
	at := func(tm time.Time, tail string) string {
		var u uuid.UUID
		for i := range 6 {
			u[i] = byte(tm.UnixMilli() >> (8 * (5 - i)))
		}
		copy(u[6:], tail)
		u[6], u[8] = u[6]&0xf|0x70, u[8]&0x3f|0x80
		return u.String()
	}
	shards := make(map[int64]bool)
	for i := range 2000 {
		tail := string([]byte{byte(i), byte(i >> 8), 3, 4, 5, 6, 7, 8, 9, byte(i)})
		before := at(since.Add(-time.Duration(1+i)*time.Millisecond), tail)
		if old.Bucket(before) != grown.Bucket(before) {
			t.Fatalf("%s, minted before the new layout, has moved", before)
		}
		after := grown.Bucket(at(since.Add(time.Duration(i)*time.Millisecond), tail))
		if start := after >> 16; start != since.Unix() {
			t.Fatalf("slice starts at %d, want the minute %d", start, since.Unix())
		}
		shards[after&0xffff] = true
	}
	if len(shards) != 64 {
		t.Errorf("2,000 ids of a minute use %d shards, want 64", len(shards))
	}
	if old.Bucket("order-17") != grown.Bucket("order-17") {
		t.Error("an id without time has moved")
	}
}

func TestShardsAreEvenlyFilled(t *testing.T) {
	const n = 16_000
	counts := make(map[int64]int)
	for range n {
		counts[DefaultLayouts().Bucket(uuid.Must(uuid.NewV7()).String())&0xffff]++
	}
	for s, c := range counts {
		if math.Abs(float64(c)-n/16) > n/16*0.2 {
			t.Errorf("shard %d has %d of %d ids", s, c, n)
		}
	}
	if len(counts) != 16 {
		t.Errorf("%d shards used, want 16", len(counts))
	}
}

func TestLayoutsValidate(t *testing.T) {
	good := Layout{Slice: 10 * time.Second, Shards: 16}
	later := func(s string) Layout {
		since, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return Layout{Since: since, Slice: time.Second, Shards: 1}
	}
	for _, tt := range []struct {
		why  string
		ls   Layouts
		want string // in the error; empty = valid
	}{
		{"default", DefaultLayouts(), ""},
		{"three", Layouts{good, later("2027-01-01T00:00:00Z"), later("2028-01-01T00:00:00Z")}, ""},
		{"none", Layouts{}, "empty"},
		{"ids before the first", Layouts{later("2027-01-01T00:00:00Z")}, "layout 0: since"},
		{"out of order", Layouts{good, later("2028-01-01T00:00:00Z"), later("2027-01-01T00:00:00Z")}, "layout 2: since"},
		{"twice the same moment", Layouts{good, later("2028-01-01T00:00:00Z"), later("2028-01-01T00:00:00Z")}, "layout 2: since"},
		{"the last moment before the time UUIDs know", Layouts{good, later("1970-01-01T00:00:00Z")}, "before 1970"},
		{"the first moment that UUIDs know", Layouts{good, later("1970-01-01T00:00:00.001Z")}, ""},
		{"the shortest slice", Layouts{{Slice: time.Second, Shards: 1}}, ""},
		{"the longest slice", Layouts{{Slice: 24 * time.Hour, Shards: 1}}, ""},
		{"slice of a day and a second", Layouts{{Slice: 24*time.Hour + time.Second, Shards: 16}}, "slice"},
		{"as many shards as there are bits for", Layouts{{Slice: time.Second, Shards: 1 << 16}}, ""},
		{"before the time UUIDs know", Layouts{good, later("1960-01-01T00:00:00Z")}, "before 1970"},
		{"slice of half a second", Layouts{{Slice: 500 * time.Millisecond, Shards: 16}}, "slice"},
		{"slice of 1.5 s", Layouts{{Slice: 1500 * time.Millisecond, Shards: 16}}, "slice"},
		{"slice of two days", Layouts{{Slice: 48 * time.Hour, Shards: 16}}, "slice"},
		{"no shards", Layouts{{Slice: time.Second}}, "0 shards"},
		{"more shards than bits", Layouts{{Slice: time.Second, Shards: 1<<16 + 1}}, "65537 shards"},
	} {
		switch err := tt.ls.Validate(); {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.why, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want %q in it", tt.why, err, tt.want)
		}
	}
}

func BenchmarkBucket(b *testing.B) {
	ls, id := DefaultLayouts(), "01a1fd03-14c0-7abc-8def-0123456789ab"
	b.ReportAllocs()
	for b.Loop() {
		ls.Bucket(id)
	}
}
