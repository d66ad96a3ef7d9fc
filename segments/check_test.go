package segments

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"
)

// drawBitmap draws a bitmap with arrays, bitmaps and runs.
func drawBitmap(t *rapid.T, label string) *roaring.Bitmap {
	b := roaring.New()
	key := rapid.Uint32Range(0, 5)
	for range rapid.IntRange(0, 4).Draw(t, label+" parts") {
		from := key.Draw(t, label+" key")<<16 | rapid.Uint32Range(0, 1<<16-1).Draw(t, label+" from")
		switch rapid.IntRange(0, 2).Draw(t, label+" kind") {
		case 0:
			b.AddMany(rapid.SliceOfN(rapid.Uint32Range(0, 6<<16), 1, 50).Draw(t, label+" numbers"))
		case 1:
			b.AddRange(uint64(from), uint64(from)+rapid.Uint64Range(1, 20_000).Draw(t, label+" length"))
		case 2:
			for n := from; n < from+15_000; n += 3 {
				b.Add(n)
			}
		}
	}
	if rapid.Bool().Draw(t, label+" runs") {
		b.RunOptimize()
	}
	return b
}

func serialized(t rapid.TB, b *roaring.Bitmap) []byte {
	data, err := b.ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Whatever the library writes is valid, and whatever is taken for valid, the
// library takes for valid, too.
func TestCheckBitmapAgreesWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBitmap(t, "b")
		data := serialized(t, b)
		if n, err := checkBitmap(data); err != nil || n != b.GetCardinality() {
			t.Fatalf("%d of %d values: %v", n, b.GetCardinality(), err)
		}
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		data = data[:len(data)-rapid.IntRange(0, 1).Draw(t, "cut")]
		agree(t, data)
	})
}

// agree fails if data is taken for valid and the library disagrees.
func agree(t rapid.TB, data []byte) {
	n, err := checkBitmap(data)
	if err != nil {
		return
	}
	read := roaring.New()
	used, err := read.ReadFrom(bytes.NewReader(data))
	if err != nil || used != int64(len(data)) || read.GetCardinality() != n {
		t.Fatalf("%d values in %d bytes; the library reads %d in %d: %v", n, len(data), read.GetCardinality(), used, err)
	}
	if err := read.Validate(); err != nil {
		t.Fatalf("the library: %v", err)
	}
}

func TestInvalidBitmaps(t *testing.T) {
	le := func(parts ...any) (b []byte) {
		for _, p := range parts {
			b, _ = binary.Append(b, binary.LittleEndian, p)
		}
		return b
	}
	type u16 = uint16
	const runs1 = uint32(cookieRuns) // one container
	for _, tt := range []struct {
		why  string
		data []byte
		text string // empty = valid
	}{
		{"no container", le(uint32(cookieNoRuns), uint32(0)), ""},
		{"an array", le(uint32(cookieNoRuns), uint32(1), u16(9), u16(1), uint32(16), u16(5), u16(6)), ""},
		{"a run over everything", le(runs1, byte(1), u16(0), u16(65535), u16(1), u16(0), u16(65535)), ""},
		{"two runs", le(runs1, byte(1), u16(0), u16(2), u16(2), u16(0), u16(1), u16(3), u16(0)), ""},
		{"nothing", nil, "too early"},
		{"no cookie", le(uint32(1)), "not a Roaring bitmap"},
		{"too many containers", le(uint32(cookieNoRuns), uint32(65537)), "65537 containers"},
		{"keys out of order", le(uint32(cookieNoRuns), uint32(2), u16(1), u16(0), u16(1), u16(0), uint32(24), uint32(26), u16(0), u16(0)), "container 1 is out of order"},
		{"an offset elsewhere", le(uint32(cookieNoRuns), uint32(1), u16(9), u16(1), uint32(18), u16(5), u16(6)), "does not begin"},
		{"an array out of order", le(uint32(cookieNoRuns), uint32(1), u16(9), u16(1), uint32(16), u16(6), u16(6)), "values are out of order"},
		{"runs that touch", le(runs1, byte(1), u16(0), u16(2), u16(2), u16(0), u16(1), u16(2), u16(0)), "runs are out of order"},
		{"a run over the end", le(runs1, byte(1), u16(0), u16(1), u16(1), u16(65535), u16(1)), "runs are out of order"},
		{"a container without runs", le(runs1, byte(1), u16(0), u16(0), u16(0)), "0 values, and the header says 1"},
		{"another number of values", le(runs1, byte(1), u16(0), u16(9), u16(1), u16(0), u16(5)), "6 values, and the header says 10"},
		{"a bitmap with too few bits", le(uint32(cookieNoRuns), uint32(1), u16(0), u16(4096), uint32(16), make([]byte, bitmapBytes)), "0 values, and the header says 4097"},
		{"something behind it", le(uint32(cookieNoRuns), uint32(0), byte(0)), "1 bytes follow"},
	} {
		_, err := checkBitmap(tt.data)
		if (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.text)
		}
		agree(t, tt.data)
	}
}

// The library compares every two runs of a container; the check must not, as
// 65,535 of them fit into a container of a hostile file.
func TestManyRunsAreCheckedInLinearTime(t *testing.T) {
	b := roaring.New()
	for n := uint32(0); n < 1<<16; n += 2 {
		b.Add(n)
	}
	var data []byte
	data = binary.LittleEndian.AppendUint32(data, cookieRuns)
	data = append(data, 1, 0, 0)
	data = binary.LittleEndian.AppendUint16(data, 1<<15-1)
	data = binary.LittleEndian.AppendUint16(data, 1<<15)
	for n := range b.Iterate {
		data = binary.LittleEndian.AppendUint16(data, uint16(n))
		data = append(data, 0, 0)
	}
	for range 200 { // 10⁹ comparisons each, if it were quadratic
		if n, err := checkBitmap(data); err != nil || n != 1<<15 {
			t.Fatal(n, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	small, err := (&Builder{groups: []GroupInfo{{Name: "g", Numbers: ByID, Segments: []SegmentInfo{{Name: "a"}, {Name: "b"}}}},
		bitmaps: [][]*roaring.Bitmap{{roaring.BitmapOf(1, 70_000, MaxNumber), roaring.BitmapOf(1, 2, 3, 4, 5, 6, 7, 8, 9)}}}).Build(3, noon)
	if err != nil {
		f.Fatal(err)
	}
	good := fileOf(f, small)
	f.Add(good, false)
	f.Add(good[:200], false)
	f.Add(serialized(f, small.groups[0].segments[0].bitmap), true)
	f.Add(serialized(f, small.groups[0].segments[1].bitmap), true)
	a, infoA := sectionOf(f, "a", UsersOf(1, 2, 3))
	f.Add(sealed(f, `{"version":1,"built":"2026-11-23T12:00:00Z","groups":[{"name":"g","exclusive":true,"numbers":"id","segments":[`+infoA+`]}]}`, a), true)
	f.Add(a, true)
	// With whole, data is one bitmap in a file that is right otherwise, as the
	// checksum would stop nearly everything before the bitmaps.
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		if whole {
			agree(t, data)
			return
		}
		var s *Set
		var err error
		if n := allocated(func() { s, err = Read(bytes.NewReader(data), 0) }); n > 8<<20+8*uint64(len(data)) {
			t.Errorf("%d bytes were allocated for a file of %d", n, len(data))
		}
		if err != nil {
			if s != nil || reasonOf(err) == "" {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := Read(bytes.NewReader(fileOf(t, s)), 0)
		if err != nil || again.Checksum() != s.Checksum() {
			t.Errorf("read, and not read again: %v", err)
		}
		for g := range s.Groups() {
			for seg := range g.Segments() {
				if n := uint64(len(slices.Collect(seg.All()))); n != seg.Count() {
					t.Errorf("%d users were enumerated, %d counted", n, seg.Count())
				}
			}
		}
	})
}
