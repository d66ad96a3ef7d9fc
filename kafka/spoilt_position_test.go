package kafka

import (
	"errors"
	"testing"
	"time"
)

// at_most_once: the group stands at 100, intents from 60 on have no result. The first
// batch that is read again comes spoilt, once: it must be fetched from 60 again.
func TestASpoiltRereadIsFetchedFromItsStart(t *testing.T) {
	o := options(func(o *SourceOptions) { o.Reread = 500 })
	a := part(o, 0)
	if from := a.begin(stand{committed: 100, unresolved: 60}, 0); from != 60 {
		t.Fatalf("got start %d", from)
	}
	if !a.fetchFailed(errors.New("crc mismatch"), true, 0, start) {
		t.Fatal("not refetched")
	}
	if a.position() != 60 {
		t.Errorf("refetched from %d, want 60: the intents below 100 must be read too", a.position())
	}
}

// Spoilt once, sound records for 6 s, spoilt once more: each is fetched again for 5 s.
func TestASoundRecordEndsASpoiltTime(t *testing.T) {
	a := part(options(nil), 0)
	a.committed = 0
	spoilt := errors.New("crc mismatch")
	if !a.fetchFailed(spoilt, true, 0, start) {
		t.Fatal("not refetched")
	}
	a.take(sized(10, 10, start), start.Add(time.Second))
	if a.failing != nil {
		t.Fatal("still failing")
	}
	if !a.fetchFailed(spoilt, true, 0, start.Add(6*time.Second)) {
		t.Errorf("stopped for good by the first spoilt fetch after sound records: %v; silence is %v", a.stopped, silence)
	}
}
