package segments

import (
	"errors"
	"fmt"
	"io"
)

// Reason is why a file was refused.
type Reason string

// The reasons.
const (
	RefusedFormat    Reason = "format"    // not a segment file, of another version of the format, or one that breaks its rules
	RefusedTruncated Reason = "truncated" // it ends too early
	RefusedChecksum  Reason = "checksum"  // a part does not have its checksum
	RefusedBitmap    Reason = "bitmap"    // a section is not a valid bitmap, or not the one that the manifest describes
	RefusedOverlap   Reason = "overlap"   // a user is in two segments of an exclusive group
	RefusedSize      Reason = "size"      // larger than the reader's limit
	RefusedVersion   Reason = "version"   // older than the one in use, or of the same version with other contents
	RefusedUse       Reason = "use"       // whole, but its user cannot use it (WatcherOptions.Check)
)

// reasons are all reasons, for metrics.
var reasons = [...]Reason{RefusedFormat, RefusedTruncated, RefusedChecksum, RefusedBitmap, RefusedOverlap, RefusedSize, RefusedVersion, RefusedUse}

// RefusedError is the error for a file that must not be used. The same bytes
// would be refused again; a failure to read them is another error.
type RefusedError struct {
	Reason Reason
	err    error
}

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }

func refusef(r Reason, format string, args ...any) error {
	return &RefusedError{Reason: r, err: fmt.Errorf(format, args...)}
}

// cut is the error of a file that ended, or failed, within a part.
func cut(err error, part string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refusef(RefusedTruncated, "truncated: it ends within %s", part)
	}
	return fmt.Errorf("reading %s: %w", part, err)
}

// origin keeps apart the end of a file and a reader that failed: a connection
// that was cut ends with io.ErrUnexpectedEOF, too.
type origin struct {
	r   io.Reader
	err error // of reading, other than io.EOF
}

func (o *origin) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	if err != nil && err != io.EOF {
		o.err = err
	}
	return n, err
}

// blame is the error of reading, if that was what made err.
func (o *origin) blame(err error) error {
	if err != nil && o.err != nil {
		return fmt.Errorf("reading segments: %w", o.err)
	}
	return err
}
