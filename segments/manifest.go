package segments

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"time"
)

// MaxNumber is the largest user number.
const MaxNumber = math.MaxUint32

const (
	magic         = "PFSEGMNT"
	formatVersion = 1
	maxManifest   = 1 << 20
	maxSegments   = 1024 // of all groups together
	// maxSection is more than the largest bitmap that is written: 65,536
	// containers of 8 KiB, and 8 bytes for each in the header.
	maxSection = 1 << 30
)

// Manifest says what is in a file. It is the JSON at the file's beginning.
type Manifest struct {
	Version uint64      `json:"version"` // at least 1; later ones are greater
	Built   time.Time   `json:"built"`
	Groups  []GroupInfo `json:"groups"` // at least one

	head int // length of what the file has before the sections
}

// GroupInfo describes a group.
type GroupInfo struct {
	Name      string        `json:"name"`
	Exclusive bool          `json:"exclusive"` // a user is in one segment at most
	Numbers   Numbering     `json:"numbers"`
	Segments  []SegmentInfo `json:"segments"` // at least one
}

// SegmentInfo describes a segment and its section of the file.
type SegmentInfo struct {
	Name   string `json:"name"`
	Users  uint64 `json:"users"`
	Bytes  int64  `json:"bytes"`  // length of the section
	SHA256 string `json:"sha256"` // of the section, in hex
}

// FileBytes is the size of the whole file.
func (m *Manifest) FileBytes() int64 { return int64(m.head) + m.Bytes() }

// Bytes is the length of all sections together.
func (m *Manifest) Bytes() (n int64) {
	for i := range m.Groups {
		for j := range m.Groups[i].Segments {
			n += m.Groups[i].Segments[j].Bytes
		}
	}
	return n
}

// Checksum is the SHA-256 that stands for the whole content of a file.
type Checksum [sha256.Size]byte

// String is the checksum in hex.
func (c Checksum) String() string { return hex.EncodeToString(c[:]) }

var name = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// checkName checks the name of a group or a segment. Names are used in
// configurations, command lines and labels of metrics.
func checkName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("a name has 1 to 64 of a-z, 0-9, '.', '_' and '-', the first one a letter or digit")
	}
	return nil
}

// check checks everything that can be checked without the sections.
func (m *Manifest) check() error {
	if m.Version == 0 {
		return errors.New("the version must be at least 1")
	}
	if len(m.Groups) == 0 {
		return errors.New("no group")
	}
	total, groups := 0, make(map[string]bool, len(m.Groups))
	for i := range m.Groups {
		g := &m.Groups[i]
		if err := checkName(g.Name); err != nil {
			return fmt.Errorf("group %d: %w", i+1, err)
		}
		if groups[g.Name] {
			return fmt.Errorf("group %s appears twice", g.Name)
		}
		groups[g.Name] = true
		if err := g.check(); err != nil {
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
		if total += len(g.Segments); total > maxSegments {
			return fmt.Errorf("more than %d segments", maxSegments)
		}
	}
	return nil
}

func (g *GroupInfo) check() error {
	if err := g.Numbers.check(g.Exclusive); err != nil {
		return err
	}
	if len(g.Segments) == 0 {
		return errors.New("no segment")
	}
	names := make(map[string]bool, len(g.Segments))
	for i := range g.Segments {
		s := &g.Segments[i]
		if err := checkName(s.Name); err != nil {
			return fmt.Errorf("segment %d: %w", i+1, err)
		}
		if names[s.Name] {
			return fmt.Errorf("segment %s appears twice", s.Name)
		}
		names[s.Name] = true
		if s.Users > MaxNumber+1 || s.Bytes <= 0 || s.Bytes > maxSection {
			return fmt.Errorf("segment %s: %d users in %d bytes are not possible", s.Name, s.Users, s.Bytes)
		}
		if sum, err := hex.DecodeString(s.SHA256); err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("segment %s: its SHA-256 is not 64 hex digits", s.Name)
		}
	}
	return nil
}

// encode makes the head of a file, all that is before the sections.
func (m *Manifest) encode() (head []byte, err error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	if len(text) > maxManifest {
		return nil, fmt.Errorf("the manifest has %d bytes, %d is the most", len(text), maxManifest)
	}
	head = make([]byte, 0, len(magic)+8+len(text)+sha256.Size)
	head = append(head, magic...)
	head = binary.LittleEndian.AppendUint32(head, formatVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	head = append(head, text...)
	sum := sha256.Sum256(head)
	head = append(head, sum[:]...)
	m.head = len(head)
	return head, nil
}

// checksumOf is the checksum at the end of a head.
func checksumOf(head []byte) Checksum { return Checksum(head[len(head)-sha256.Size:]) }

// ReadManifest reads a file's manifest, and nothing behind it: what the file
// says it contains. Errors are those of Read.
func ReadManifest(r io.Reader) (*Manifest, Checksum, error) {
	src := &origin{r: r}
	m, head, err := readHead(src)
	if err != nil {
		return nil, Checksum{}, src.blame(err)
	}
	return m, checksumOf(head), nil
}

// readHead reads and checks the head of a file.
func readHead(r io.Reader) (m *Manifest, head []byte, err error) {
	const fixed = len(magic) + 8
	head = make([]byte, fixed)
	if n, err := io.ReadFull(r, head); err != nil {
		if n == 0 && err == io.EOF {
			return nil, nil, refusef(RefusedTruncated, "the file is empty")
		}
		if n > 0 && !strings.HasPrefix(magic, string(head[:min(n, len(magic))])) {
			return nil, nil, notSegments()
		}
		return nil, nil, cut(err, "the header")
	}
	if string(head[:len(magic)]) != magic {
		return nil, nil, notSegments()
	}
	if v := binary.LittleEndian.Uint32(head[len(magic):]); v != formatVersion {
		return nil, nil, refusef(RefusedFormat, "format version %d; this program reads version %d", v, formatVersion)
	}
	n := binary.LittleEndian.Uint32(head[len(magic)+4:])
	if n == 0 || n > maxManifest {
		return nil, nil, refusef(RefusedFormat, "a manifest of %d bytes; 1 to %d are possible", n, maxManifest)
	}
	head = append(head, make([]byte, int(n)+sha256.Size)...)
	if _, err := io.ReadFull(r, head[fixed:]); err != nil {
		return nil, nil, cut(err, "the manifest")
	}
	text := head[fixed : fixed+int(n)]
	if sha256.Sum256(head[:fixed+int(n)]) != checksumOf(head) {
		return nil, nil, refusef(RefusedChecksum, "the manifest does not have its checksum")
	}
	m = &Manifest{head: len(head)}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, nil, refusef(RefusedFormat, "the manifest: %w", err)
	}
	if d.More() {
		return nil, nil, refusef(RefusedFormat, "the manifest is more than one value")
	}
	if err := m.check(); err != nil {
		return nil, nil, refusef(RefusedFormat, "the manifest: %w", err)
	}
	return m, head, nil
}

func notSegments() error {
	return refusef(RefusedFormat, "not a segment file: it does not begin with %s", magic)
}
