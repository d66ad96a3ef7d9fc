package fanout

import (
	"strings"
	"testing"
	"time"
)

const sealedText = `{"sealed":"AQID"}`

// A sealed text comes as it was, with what else a job may have, and for subscribers alone.
func TestSealedJobs(t *testing.T) {
	for _, change := range []func(*Job){
		func(*Job) {}, withTokens, func(j *Job) { j.Until = j.Expires.Add(time.Hour) }, func(j *Job) { withTokens(j); j.Until = j.Expires.Add(time.Hour) },
	} {
		j := aJob(t, change, func(j *Job) { j.Sealed = []byte(sealedText) })
		value, err := EncodeJob(j)
		if err != nil {
			t.Fatal(err)
		}
		read, err := DecodeJob(value)
		if err != nil || string(read.Sealed) != sealedText || !read.Until.Equal(j.Until) || read.Clicks != j.Clicks || string(read.Rest) != string(j.Rest) {
			t.Errorf("%+v, %v", read, err)
		}
	}
	for why, change := range map[string]func(*Job){
		"to all users of an app": func(j *Job) { j.To = To{Kind: OfApp, Name: j.App, Parts: 4} },
		"too long":               func(j *Job) { j.Sealed = []byte(strings.Repeat("x", MaxSealed+1)) },
	} {
		j := *aJob(t)
		j.Sealed = []byte(sealedText)
		change(&j)
		if _, err := EncodeJob(&j); err == nil || !strings.Contains(err.Error(), "sealed") {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// A sealed text is kept before the first chunk, which does without it; where nobody keeps it
// nothing is pushed, and the job waits.
func TestASealedMessageIsKept(t *testing.T) {
	w := newWorld(manyUsers(10))
	j := aliveJob(t, func(j *Job) { j.Sealed = []byte(sealedText) })
	chunks := func() int { return len(w.ledger.in(ChunksTopic(j.Lane))) }
	s := &shelf{chunks: chunks}
	x := &Expander{Producer: w.ledger, Notes: w.notes, Open: 2, Metrics: w.Metrics, Log: w.Log}
	do := func() error { return x.Do(t.Context(), &Work{Topic: JobsTopic, Value: j.append(nil)}) }
	if err := do(); err == nil || !strings.Contains(err.Error(), "gateway.inbox") || chunks() != 0 {
		t.Fatalf("nobody keeps it: %v, %d chunks", err, chunks())
	}
	x.Inboxes = s
	for range 2 { // the first one has pinned it
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.kept) != 2 || s.before[0] != 0 || s.sealed != sealedText {
		t.Errorf("kept %q, sealed %q, with %v chunks there", s.kept, s.sealed, s.before)
	}
	for _, value := range w.ledger.in(ChunksTopic(j.Lane)) {
		if c, err := DecodeChunk([]byte(value)); err != nil || len(c.Sealed) > 0 || c.Message != j.Message {
			t.Errorf("%+v, %v", c, err)
		}
	}
}
