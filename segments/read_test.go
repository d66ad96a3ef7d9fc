package segments

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// seal is the beginning of a file, up to and with its checksum.
func seal(format uint32, manifest []byte) []byte {
	head := binary.LittleEndian.AppendUint32([]byte(magic), format)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(manifest)))
	head = append(head, manifest...)
	sum := sha256.Sum256(head)
	return append(head, sum[:]...)
}

// sectionOf is the section of a segment, and its description.
func sectionOf(t testing.TB, name string, u Users) (section []byte, info string) {
	t.Helper()
	section, err := u.bitmap.ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return section, fmt.Sprintf(`{"name":%q,"users":%d,"bytes":%d,"sha256":"%x"}`, name, u.Count(), len(section), sha256.Sum256(section))
}

func reasonOf(err error) Reason {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Reason
	}
	return ""
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	s := lifecycle(t, 5)
	file := fileOf(t, s)
	for name, r := range map[string]io.Reader{"at once": bytes.NewReader(file), "byte by byte": iotest.OneByteReader(bytes.NewReader(file)), "end with data": iotest.DataErrReader(bytes.NewReader(file))} {
		got, err := Read(r, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got.Manifest(), s.Manifest()) || got.Checksum() != s.Checksum() || got.Version() != 5 {
			t.Errorf("%s: read %+v, written %+v", name, got.Manifest(), s.Manifest())
		}
		for g := range s.Groups() {
			for seg := range g.Segments() {
				read, ok := got.Group(g.Name()).Segment(seg.Name)
				if !ok || !slices.Equal(slices.Collect(read.All()), slices.Collect(seg.All())) {
					t.Errorf("%s: %s/%s has other users", name, g.Name(), seg.Name)
				}
			}
		}
		if again := fileOf(t, got); !bytes.Equal(again, file) {
			t.Errorf("%s: written again it is another file", name)
		}
	}
}

// A section that is longer than what is allocated at first.
func TestLongSectionsAreRead(t *testing.T) {
	var b Builder
	even := span(0, 1<<21, 2)
	for _, err := range []error{b.AddGroup("g", true, ByID), b.AddUsers("g", "even", even), b.AddUsers("g", "one", UsersOf(1))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build(1, noon)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Manifest().Groups[0].Segments[0].Bytes; n < 4*firstRead || n%firstRead == 0 {
		t.Fatalf("a section of %d bytes", n)
	}
	seg, _ := readBack(t, s).Group("g").Segment("even")
	if Difference(seg.Users, even).Count() != 0 || seg.Count() != 1<<20+1 {
		t.Errorf("%d users", seg.Count())
	}
}

func TestReadManifestReadsNothingBehindIt(t *testing.T) {
	s := lifecycle(t, 5)
	r := bytes.NewReader(fileOf(t, s))
	m, sum, err := ReadManifest(r)
	if err != nil || sum != s.Checksum() || !reflect.DeepEqual(*m, s.Manifest()) {
		t.Fatalf("%+v, %s, %v", m, sum, err)
	}
	if int64(r.Len()) != m.Bytes() {
		t.Errorf("%d bytes left, the sections have %d", r.Len(), m.Bytes())
	}
}

// Wherever a file ends too early, it is refused as truncated.
func TestTruncatedFilesAreRefused(t *testing.T) {
	file := fileOf(t, lifecycle(t, 1))
	for n := range file {
		if n > 1200 && n%499 != 0 { // within the bitmaps
			continue
		}
		if _, err := Read(bytes.NewReader(file[:n]), 0); reasonOf(err) != RefusedTruncated {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(file), err)
		}
	}
}

// Whichever byte of a file is changed, it is refused.
func TestDamagedFilesAreRefused(t *testing.T) {
	file := fileOf(t, lifecycle(t, 1))
	for i := range file {
		if i > 1200 && i%499 != 0 { // within the bitmaps
			continue
		}
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x10
		if s, err := Read(bytes.NewReader(damaged), 0); reasonOf(err) == "" || s != nil {
			t.Fatalf("byte %d of %d changed: %v, %v", i, len(file), s, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := fileOf(t, lifecycle(t, 1))
	a, infoA := sectionOf(t, "a", UsersOf(1, 2, 3))
	b, infoB := sectionOf(t, "b", UsersOf(3, 4))
	const manifest = `{"version":1,"built":"2026-11-23T12:00:00Z","groups":[%s]}`
	group := func(rest string, segments ...string) string {
		return fmt.Sprintf(manifest, fmt.Sprintf(`{"name":"g",%s,"segments":[%s]}`, rest, strings.Join(segments, ",")))
	}
	const exclusive, overlapping = `"exclusive":true,"numbers":"record"`, `"exclusive":false,"numbers":"record"`
	for _, tt := range []struct {
		why    string
		file   []byte
		max    int64
		reason Reason // empty = it is read
		text   string
	}{
		{"two that overlap in a group that allows it", sealed(t, group(overlapping, infoA, infoB), a, b), 0, "", ""},
		{"two that overlap in an exclusive group", sealed(t, group(exclusive, infoA, infoB), a, b), 0, RefusedOverlap, "group g is exclusive, and 1 users are in both a and b, user number 3 is the first"},
		{"not a segment file", []byte("user_number\n1\n2\n3\n"), 0, RefusedFormat, "not a segment file"},
		{"not one, and short", []byte("1\n"), 0, RefusedFormat, "not a segment file"},
		{"empty", nil, 0, RefusedTruncated, "empty"},
		{"a later format", seal(2, []byte("{}")), 0, RefusedFormat, "format version 2"},
		{"a manifest without length", seal(1, nil), 0, RefusedFormat, "manifest of 0 bytes"},
		{"a manifest of 4 GiB", append([]byte(magic), 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff), 0, RefusedFormat, "manifest of 4294967295 bytes"},
		{"a manifest that is not JSON", sealed(t, "{"), 0, RefusedFormat, "the manifest"},
		{"a manifest and more", sealed(t, group(exclusive, infoA)+"{}", a), 0, RefusedFormat, "more than one value"},
		{"an unknown field", sealed(t, strings.Replace(group(exclusive, infoA), `"version"`, `"zone":1,"version"`, 1), a), 0, RefusedFormat, "zone"},
		{"an unknown numbering", sealed(t, group(`"exclusive":true,"numbers":"rank"`, infoA), a), 0, RefusedFormat, `unknown numbering "rank"`},
		{"hashes in an exclusive group", sealed(t, group(`"exclusive":true,"numbers":"hash"`, infoA), a), 0, RefusedFormat, "16 million"},
		{"no version", sealed(t, strings.Replace(group(exclusive, infoA), `"version":1`, `"version":0`, 1), a), 0, RefusedFormat, "version must be at least 1"},
		{"no group", sealed(t, fmt.Sprintf(manifest, "")), 0, RefusedFormat, "no group"},
		{"no segment", sealed(t, group(exclusive)), 0, RefusedFormat, "no segment"},
		{"a segment twice", sealed(t, group(exclusive, infoA, infoA), a, a), 0, RefusedFormat, "twice"},
		{"a name that moves the cursor", sealed(t, group(exclusive, strings.Replace(infoA, `"a"`, `"\u001b[2J"`, 1)), a), 0, RefusedFormat, "a name has"},
		{"more users than there are numbers", sealed(t, group(exclusive, strings.Replace(infoA, `"users":3`, `"users":4294967297`, 1)), a), 0, RefusedFormat, "not possible"},
		{"a section of 2 GiB", sealed(t, group(exclusive, strings.Replace(infoA, fmt.Sprintf(`"bytes":%d`, len(a)), `"bytes":2147483648`, 1)), a), 0, RefusedFormat, "not possible"},
		{"a section of -1 bytes", sealed(t, group(exclusive, strings.Replace(infoA, fmt.Sprintf(`"bytes":%d`, len(a)), `"bytes":-1`, 1)), a), 0, RefusedFormat, "not possible"},
		{"a hash that is none", sealed(t, group(exclusive, strings.Replace(infoA, `"sha256":"`, `"sha256":"x`, 1)), a), 0, RefusedFormat, "not 64 hex digits"},
		{"a hash with a byte too many", sealed(t, group(exclusive, strings.Replace(infoA, `"sha256":"`, `"sha256":"ab`, 1)), a), 0, RefusedFormat, "not 64 hex digits"},
		{"another number of users", sealed(t, group(exclusive, strings.Replace(infoA, `"users":3`, `"users":4`, 1)), a), 0, RefusedBitmap, "3 users in its section, and the manifest says 4"},
		{"a section of another segment", sealed(t, group(exclusive, infoA), b, b), 0, RefusedChecksum, "segment g/a"},
		{"something behind the end", append(bytes.Clone(good), 0), 0, RefusedFormat, "follows the last"},
		{"larger than the limit", good, 1000, RefusedSize, "the limit is 1000"},
	} {
		s, err := Read(bytes.NewReader(tt.file), tt.max)
		if reasonOf(err) != tt.reason || (err == nil) != (tt.reason == "") || (s == nil) != (err != nil) {
			t.Errorf("%s: %v", tt.why, err)
		} else if err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %q, want %q in it", tt.why, err, tt.text)
		}
	}
}

// A source that fails is no file to refuse: the next poll may succeed.
func TestAFailingReaderIsNotTruncation(t *testing.T) {
	file := fileOf(t, lifecycle(t, 1))
	for _, broken := range []error{io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		for _, n := range []int{0, 5, 30, len(file) / 2, len(file)} {
			_, err := Read(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken)), 0)
			if !errors.Is(err, broken) || reasonOf(err) != "" {
				t.Errorf("failed after %d bytes: %v", n, err)
			}
		}
	}
	if _, _, err := ReadManifest(iotest.ErrReader(io.ErrUnexpectedEOF)); reasonOf(err) != "" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ReadManifest: %v", err)
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A few bytes that announce a gigabyte cost as much memory as a few bytes.
func TestAnnouncedLengthsAllocateNothing(t *testing.T) {
	file := sealed(t, fmt.Sprintf(`{"version":1,"built":"2026-11-23T12:00:00Z","groups":[{"name":"g","exclusive":true,"numbers":"record","segments":[{"name":"a","users":4294967296,"bytes":%d,"sha256":"%064d"}]}]}`, maxSection, 0))
	n := allocated(func() {
		if _, err := Read(bytes.NewReader(file), 0); reasonOf(err) != RefusedTruncated {
			t.Errorf("%v", err)
		}
	})
	if n > 4<<20 {
		t.Errorf("%d bytes were allocated for a file of %d", n, len(file))
	}
	// A bitmap that announces 65,536 containers, without any of them.
	bitmap := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, cookieNoRuns), maxContainers)
	if _, err := checkBitmap(bitmap); !errors.Is(err, errShort) {
		t.Errorf("%v", err)
	}
}
