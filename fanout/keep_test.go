package fanout

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// shelf keeps messages, or fails.
type shelf struct {
	kept   []string // titles and types
	chunks func() int
	before []int  // chunks that were there when one was kept
	sealed string // of the one that was kept last
	err    error
}

func (s *shelf) Keep(_ context.Context, j *Job, m *push.Message) error {
	if s.err != nil {
		return s.err
	}
	s.kept = append(s.kept, m.Title+" "+m.Type+" "+j.Message.String())
	s.before, s.sealed = append(s.before, s.chunks()), string(j.Sealed)
	return nil
}

// A message is kept for those who fetch it before its first chunk is there, again when its
// record comes again, and not when it was cancelled before; unless it is kept, nothing
// follows, and the record is worked on again.
func TestAMessageIsKeptFirst(t *testing.T) {
	w := newWorld(manyUsers(10))
	j := aliveJob(t)
	chunks := func() int { return len(w.ledger.in(ChunksTopic(j.Lane))) }
	s := &shelf{chunks: chunks, err: errors.New("away")}
	x := &Expander{Producer: w.ledger, Notes: w.notes, Inboxes: s, Open: 2, Metrics: w.Metrics, Log: w.Log}
	do := func(j *Job) error {
		t.Helper()
		value, err := EncodeJob(j)
		if err != nil {
			t.Fatal(err)
		}
		return x.Do(t.Context(), &Work{Topic: JobsTopic, Value: value})
	}
	if err := do(j); !errors.Is(err, s.err) || chunks() != 0 {
		t.Fatalf("it cannot be kept: %v, %d chunks", err, chunks())
	}
	s.err = nil
	for range 2 {
		if err := do(j); err != nil {
			t.Fatal(err)
		}
	}
	want := "Snow news " + j.Message.String()
	if len(s.kept) != 2 || s.kept[0] != want || s.kept[1] != want || s.before[0] != 0 || chunks() != 2 {
		t.Errorf("kept %q with %v chunks there", s.kept, s.before)
	}
	other := aliveJob(t, func(j *Job) { j.Message[15]++ })
	if err := w.notes.Order(t.Context(), other.Message, Cancelled, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := do(other); err != nil || len(s.kept) != 2 {
		t.Errorf("a message that was cancelled: %v, kept %q", err, s.kept)
	}
}

// Until when a message can be fetched comes as it was; a job without that is what earlier
// releases read.
func TestUntil(t *testing.T) {
	j := aJob(t, func(j *Job) { j.Until = j.Expires.Add(72 * time.Hour) })
	read, err := DecodeJob(j.append(nil))
	if err != nil || !read.Until.Equal(j.Until) {
		t.Fatalf("%+v, %v", read, err)
	}
	c, err := DecodeChunk((&Chunk{Job: j}).encode())
	if err != nil || !c.Until.Equal(j.Until) {
		t.Errorf("%+v, %v", c, err)
	}
	if first := aJob(t).append(nil)[0]; first != jobVersion {
		t.Errorf("without it the version is %d", first)
	}
	j.Until = j.Expires.Add(-time.Millisecond)
	if _, err := EncodeJob(j); err == nil {
		t.Error("it ends before its records expire")
	}
	broken := aJob(t).append(nil)
	broken[0] = untilVersion
	if _, err := DecodeJob(broken); err == nil || errors.Is(err, ErrVersion) {
		t.Errorf("of the version that has it, without: %v", err)
	}
}
