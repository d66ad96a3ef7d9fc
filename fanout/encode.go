package fanout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
)

// A job as a record's value is its version, the message's id, and its texts and numbers:
// a text with its length before it, a number as a varint. A chunk is another version, its
// part and how far it is, and the job as it is.
const (
	jobVersion   = 1
	untilVersion = 2 // of a job that has Until, which is behind Open
	clickVersion = 3 // of a job with Clicks: Until is there, and 0 if there is none
	// otherVersion is of a job for another audience than a topic's subscribers: Until is
	// there likewise, and behind it 1 if it has Clicks, or 0.
	otherVersion = 4
	// sealedVersion is of a job with Sealed, which is behind Rest: the rest is as in otherVersion.
	sealedVersion = 5
	chunkVersion  = 129
	// laterVersions is how many versions are reserved for later releases: what begins with
	// anything else was written by nobody of ours.
	laterVersions = 16
	maxNumber     = 1<<31 - 1
	maxCount      = 1 << 53
	maxMillis     = 1 << 53
)

// ErrVersion says that a record is of a later release: it is not broken.
var ErrVersion = errors.New("is of a version that this release does not know")

// EncodeJob returns a job as a record's value. An error says what is wrong with it.
func EncodeJob(j *Job) ([]byte, error) {
	if err := j.prepare(); err != nil {
		return nil, fmt.Errorf("fan-out %s: %w", j.Message, err)
	}
	return j.append(nil), nil
}

func (j *Job) append(b []byte) []byte {
	version := byte(jobVersion)
	switch {
	case len(j.Sealed) > 0:
		version = sealedVersion
	case j.To.Kind != OfTopic:
		version = otherVersion
	case j.Clicks:
		version = clickVersion
	case !j.Until.IsZero():
		version = untilVersion
	}
	b = append(append(b, version), j.Message[:]...)
	for _, text := range j.texts() {
		b = appendText(b, *text)
	}
	b = binary.AppendUvarint(b, uint64(j.Partitions))
	b = binary.AppendUvarint(b, uint64(j.Accepted.UnixMilli()))
	b = binary.AppendUvarint(b, uint64(j.Expires.UnixMilli()))
	b = binary.AppendUvarint(b, uint64(j.Priority))
	b = binary.AppendUvarint(b, uint64(j.To.Layout))
	b = binary.AppendUvarint(b, uint64(j.To.Buckets))
	b = binary.AppendUvarint(b, uint64(j.To.Parts))
	b = binary.AppendUvarint(b, uint64(j.Open))
	switch {
	case !j.Until.IsZero():
		b = binary.AppendUvarint(b, uint64(j.Until.UnixMilli()))
	case version >= clickVersion:
		b = append(b, 0)
	}
	if version >= otherVersion {
		clicks := byte(0)
		if j.Clicks {
			clicks = 1
		}
		b = append(b, clicks)
	}
	if b = appendText(b, string(j.Rest)); version == sealedVersion {
		b = appendText(b, string(j.Sealed))
	}
	return b
}

// texts are a job's texts, in their order.
func (j *Job) texts() []*string {
	return []*string{&j.Sender, &j.App, &j.ServiceType, &j.Lane, &j.Topic, &j.To.Kind, &j.To.Name, &j.Campaign, &j.Traceparent}
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// DecodeJob reads what EncodeJob returned, and nothing else. The job shares the value's
// memory.
func DecodeJob(value []byte) (*Job, error) {
	j := &Job{}
	if err := j.decode(value); err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	return j, nil
}

func (j *Job) decode(value []byte) error {
	r := reader{b: value}
	version, err := r.version(jobVersion, sealedVersion)
	if err != nil {
		return err
	}
	copy(j.Message[:], r.take(uint64(len(uuid.UUID{}))))
	for _, text := range j.texts() {
		*text = string(r.take(r.number(maxText)))
	}
	j.Partitions = int32(r.number(maxNumber))
	j.Accepted, j.Expires = r.time(), r.time()
	j.Priority = push.Priority(r.number(uint64(push.Critical)))
	j.To.Layout, j.To.Buckets, j.To.Parts = int(r.number(maxNumber)), int(r.number(maxNumber)), int(r.number(Slices))
	j.Open = int(r.number(Slices))
	if version >= untilVersion {
		j.Until = r.time()
	}
	if version >= clickVersion && j.Until.UnixMilli() == 0 {
		j.Until = time.Time{}
	}
	j.Clicks = version == clickVersion || version >= otherVersion && r.number(1) == 1
	j.Rest = r.take(r.number(uint64(len(value))))
	if version == sealedVersion {
		j.Sealed = r.take(r.number(MaxSealed))
	}
	if r.bad || len(r.b) > 0 {
		return errBroken
	}
	if err := j.prepare(); err != nil {
		return err
	}
	if !bytes.Equal(j.append(nil), value) {
		return errBroken
	}
	return nil
}

// errBroken is a value that no release has written.
var errBroken = errors.New("the value is broken")

// encode returns a chunk as a record's value.
func (c *Chunk) encode() []byte {
	b := c.append(make([]byte, 0, len(c.Rest)+512))
	return c.Job.append(b)
}

func (c *Chunk) append(b []byte) []byte {
	b = append(b, chunkVersion)
	b = binary.AppendUvarint(b, uint64(c.Part))
	b = appendText(b, c.Done.After)
	b = binary.AppendUvarint(b, uint64(c.Done.Emitted))
	for _, n := range c.Done.Skipped {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// DecodeChunk reads a chunk's record, and nothing else. The chunk shares the value's
// memory.
func DecodeChunk(value []byte) (*Chunk, error) {
	c := &Chunk{Job: &Job{}}
	if err := c.decode(value); err != nil {
		return nil, fmt.Errorf("chunk: %w", err)
	}
	return c, nil
}

func (c *Chunk) decode(value []byte) error {
	r := reader{b: value}
	if _, err := r.version(chunkVersion, chunkVersion); err != nil {
		return err
	}
	c.Part = int(r.number(Slices - 1))
	c.Done.After = string(r.take(r.number(maxText)))
	c.Done.Emitted = int64(r.number(maxCount))
	for i := range c.Done.Skipped {
		c.Done.Skipped[i] = int64(r.number(maxCount))
	}
	if r.bad || !bytes.HasPrefix(value, c.append(nil)) {
		return errBroken
	}
	if err := c.Job.decode(r.b); err != nil {
		return err
	}
	if c.Part >= c.To.Parts {
		return fmt.Errorf("part %d of %d", c.Part, c.To.Parts)
	}
	return nil
}

// reader reads a value. After what cannot be read it reads nothing more.
type reader struct {
	b   []byte
	bad bool
}

// version reads the version, which must be one from first to last. Those behind it are of
// later releases.
func (r *reader) version(first, last byte) (byte, error) {
	got := r.take(1)
	switch {
	case r.bad || got[0] < first || got[0] > first+laterVersions:
		return 0, errBroken
	case got[0] > last:
		return 0, fmt.Errorf("%w: %d", ErrVersion, got[0])
	}
	return got[0], nil
}

func (r *reader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) time() time.Time { return time.UnixMilli(int64(r.number(maxMillis))).UTC() }

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}
