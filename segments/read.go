package segments

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/RoaringBitmap/roaring/v2"
)

// DefaultMaxBytes is the largest file that is loaded unless another limit is
// given: some 15 exclusive groups of 270 million users.
const DefaultMaxBytes = 2 << 30

// firstRead is how many bytes are allocated for a section before any has been read.
const firstRead = 64 << 10

// Read reads a file and checks all of it. The result shares no memory with r.
// maxBytes is the most that the sections may take; 0 means DefaultMaxBytes.
//
// The error is a RefusedError if the file must not be used, else that of r.
func Read(r io.Reader, maxBytes int64) (*Set, error) {
	return read(r, maxBytes, func(*Manifest, Checksum) error { return nil })
}

// read is Read. Before the sections are read, wanted may end it with an error.
func read(r io.Reader, maxBytes int64, wanted func(*Manifest, Checksum) error) (*Set, error) {
	src := &origin{r: r}
	s, err := readAll(bufio.NewReaderSize(src, 64<<10), maxBytes, wanted)
	return s, src.blame(err)
}

func readAll(r io.Reader, maxBytes int64, wanted func(*Manifest, Checksum) error) (*Set, error) {
	m, head, err := readHead(r)
	if err != nil {
		return nil, err
	}
	if err := wanted(m, checksumOf(head)); err != nil {
		return nil, err
	}
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	if n := m.Bytes(); n > maxBytes {
		return nil, refusef(RefusedSize, "%d bytes of bitmaps; the limit is %d", n, maxBytes)
	}
	users := make([][]Users, len(m.Groups))
	for i := range m.Groups {
		g := &m.Groups[i]
		for j := range g.Segments {
			u, err := readSegment(r, &g.Segments[j])
			if err != nil {
				return nil, fmt.Errorf("segment %s/%s: %w", g.Name, g.Segments[j].Name, err)
			}
			users[i] = append(users[i], u)
		}
	}
	var more [1]byte
	switch _, err := io.ReadFull(r, more[:]); {
	case err == nil:
		return nil, refusef(RefusedFormat, "something follows the last segment")
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("reading the end: %w", err)
	}
	s := newSet(m, head, users)
	if err := s.checkExclusive(); err != nil {
		return nil, err
	}
	return s, nil
}

// readSegment reads a section and checks it against the manifest.
func readSegment(r io.Reader, info *SegmentInfo) (Users, error) {
	data, err := readSection(r, info.Bytes)
	if err != nil {
		return Users{}, err
	}
	want, err := hex.DecodeString(info.SHA256)
	if err != nil {
		return Users{}, refusef(RefusedFormat, "its SHA-256: %w", err)
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], want) {
		return Users{}, refusef(RefusedChecksum, "its section does not have its checksum")
	}
	n, err := checkBitmap(data)
	if err != nil {
		return Users{}, refusef(RefusedBitmap, "its section: %w", err)
	}
	if n != info.Users {
		return Users{}, refusef(RefusedBitmap, "%d users in its section, and the manifest says %d", n, info.Users)
	}
	b := roaring.New()
	// The bitmap is made on data, without a copy; nothing changes data from here on.
	if read, err := b.FromUnsafeBytes(data); err != nil || read != info.Bytes {
		return Users{}, refusef(RefusedBitmap, "its section: %d of %d bytes were used: %w", read, info.Bytes, err)
	}
	return Users{bitmap: b, section: data}, nil
}

// readSection reads n bytes. What it allocates grows with what has come, so
// that a length alone costs nothing.
func readSection(r io.Reader, n int64) ([]byte, error) {
	data, have := make([]byte, min(n, firstRead)), 0
	for {
		k, err := io.ReadFull(r, data[have:])
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, refusef(RefusedTruncated, "truncated: %d of its %d bytes are there", have+k, n)
			}
			return nil, err
		}
		if have = len(data); int64(have) == n {
			return data, nil
		}
		grown := make([]byte, min(n, 2*int64(have)))
		copy(grown, data)
		data = grown
	}
}
