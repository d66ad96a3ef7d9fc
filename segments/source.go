package segments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Source is where a file is found, whose contents are replaced from time to
// time. Safe for concurrent use.
type Source interface {
	// Open opens the newest contents. If they are still those with this tag, the
	// error is ErrUnchanged; an empty tag stands for none. Reading fails when ctx
	// ends. An error names neither credentials nor contents.
	Open(ctx context.Context, tag string) (*Contents, error)
	// String names the source, without credentials.
	String() string
}

// ErrUnchanged is the error of a Source whose contents are still the same.
var ErrUnchanged = errors.New("unchanged")

// Contents are contents of a Source. The caller closes Body.
type Contents struct {
	Body io.ReadCloser
	Size int64  // in bytes; -1 if the source does not say
	Tag  string // which contents they are; empty if the source does not say
}

// File is a file as a Source. It should be replaced by renaming another one, as
// WriteFile does: a file that is being written is refused until it is whole.
type File string

// Open implements Source.
func (f File) Open(_ context.Context, tag string) (*Contents, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", string(f))
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	c := &Contents{Body: file, Size: info.Size(), Tag: fmt.Sprintf("%d-%d", info.ModTime().UnixNano(), info.Size())}
	if c.Tag == tag {
		_ = file.Close()
		return nil, ErrUnchanged
	}
	return c, nil
}

// String implements Source.
func (f File) String() string { return string(f) }

// WriteFile replaces a file with a set atomically: whoever opens the path finds either
// the former file or all of the set, whatever happens meanwhile. Its mode is that
// of any new file (the umask decides).
func WriteFile(path string, s *Set) (err error) {
	dir := filepath.Dir(path)
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(".%s.%x", filepath.Base(path), rand.Uint64())), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("writing segments: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = s.WriteTo(f)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing segments: %w", err)
	}
	return syncDir(dir)
}

// syncDir makes a renaming in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("writing segments: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("writing segments: %w", err)
	}
	return nil
}
