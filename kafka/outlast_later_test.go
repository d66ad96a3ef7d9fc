package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// A look may find the successor of a leader that was cut off before the first record of
// the successor is taken, as of a partition that is paused. What the former leader has told
// is in doubt then as well: a former owner may have read all that the successor has by now.
func TestALaterLeaderThatTellsAnEndFirstHidesNothingFromConfirms(t *testing.T) {
	const session = 10 * time.Second
	s := newSource(*options(func(o *SourceOptions) { o.Topics, o.Session, o.Confirms = mainTopic("push"), session, 100 }), Options{}.log())
	began := time.Now()
	a := newAssignment(&s.options, s.topics["push"], 0, newLease(), began)
	s.parts[a.partition] = a
	now := began.Add(2 * session)
	for _, end := range []logEnd{{1, 5}, {3, 6}} { // cut off; its successor
		s.noteEnds(map[push.Partition]logEnd{a.partition: end}, nil, now, now)
		now = now.Add(lookEvery)
	}
	a.take([]*kgo.Record{{Topic: "push", Offset: 2, LeaderEpoch: 6}}, now)
	b := &pipeline.Batch{Tracker: a.tracker, Items: []pipeline.Item{{Offset: 2}}}
	a.tracker.Admit(b)
	if !b.Items[0].Confirm {
		t.Error("offset 2, behind the end that the former leader told, is not confirmed")
	}
}

// A leader tells its high watermark as the end. What it has given to its followers and they
// have not acknowledged lies behind that, and when the leader is cut off it is its
// successor's, who lets it be read; the records are of the former epoch.
func TestRecordsOfTheEpochOfALeaderThatWasCutOffAreHiddenFromNoConfirm(t *testing.T) {
	const session = 10 * time.Second
	s := newSource(*options(func(o *SourceOptions) { o.Topics, o.Session, o.Confirms = mainTopic("push"), session, 100 }), Options{}.log())
	began := time.Now()
	a := newAssignment(&s.options, s.topics["push"], 0, newLease(), began)
	s.parts[a.partition] = a
	now := began.Add(2 * session)
	// The leader of epoch 5 has offsets 0 to 3, and was cut off when only 0 was acknowledged.
	s.noteEnds(map[push.Partition]logEnd{a.partition: {1, 5}}, nil, now, now)
	// All are read from the leader of epoch 6, which has one record of its own.
	s.leaderEpoch = func(push.Partition) int32 { return 6 }
	s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "push", Partitions: []kgo.FetchPartition{{HighWatermark: 4,
		Records: []*kgo.Record{{Topic: "push", Offset: 1, LeaderEpoch: 5}}}}}}}})
	b := &pipeline.Batch{Tracker: a.tracker, Items: []pipeline.Item{{Offset: 1}}}
	a.tracker.Admit(b)
	if !b.Items[0].Confirm {
		t.Error("offset 1, which a former owner may have read from the successor, is not confirmed")
	}
}

// Records wait between when they are taken and when they are handed out. An end that a
// leader tells meanwhile that was cut off before says nothing about them, nor does the end
// of a broker that tells no epoch; that of their own leader does.
func TestWhatWaitsIsHiddenFromNoConfirmByALeaderThatWasCutOff(t *testing.T) {
	const session = 10 * time.Second
	for _, tt := range []struct {
		what      string
		taken     int32 // the epoch of a record that is taken first
		end       logEnd
		then      int32 // the epoch of one that is taken after that end was told; -2 = none is
		confirmed bool
	}{
		{"a former leader", 6, logEnd{1, 5}, -2, true},
		{"its own leader", 6, logEnd{1, 6}, -2, false},
		{"a broker without epochs", -1, logEnd{1, -1}, -2, true},
		{"a leader whose first record comes after that", -1, logEnd{1, 6}, 6, false},
	} {
		s := newSource(*options(func(o *SourceOptions) { o.Topics, o.Session, o.Confirms = mainTopic("push"), session, 100 }), Options{}.log())
		began := time.Now()
		a := newAssignment(&s.options, s.topics["push"], 0, newLease(), began)
		s.parts[a.partition] = a
		now := began.Add(2 * session)
		a.take([]*kgo.Record{{Topic: "push", Offset: 1, LeaderEpoch: tt.taken}}, now)
		s.noteEnds(map[push.Partition]logEnd{a.partition: tt.end}, nil, now, now)
		if tt.then != -2 {
			a.take([]*kgo.Record{{Topic: "push", Offset: 2, LeaderEpoch: tt.then}}, now)
		}
		b := &pipeline.Batch{Tracker: a.tracker, Items: []pipeline.Item{{Offset: 1}}}
		a.tracker.Admit(b)
		if got := b.Items[0].Confirm; got != tt.confirmed {
			t.Errorf("%s: confirmed %t, want %t", tt.what, got, tt.confirmed)
		}
	}
}

// After records of a later leader are taken, an end of the former one says nothing, also
// if more records are taken before they are handed out.
func TestAFormerLeadersEndAfterADoubtHidesNothingFromConfirms(t *testing.T) {
	const session = 10 * time.Second
	s := newSource(*options(func(o *SourceOptions) { o.Topics, o.Session, o.Confirms = mainTopic("push"), session, 100 }), Options{}.log())
	began := time.Now()
	a := newAssignment(&s.options, s.topics["push"], 0, newLease(), began)
	s.parts[a.partition] = a
	now := began.Add(2 * session)
	s.noteEnds(map[push.Partition]logEnd{a.partition: {1, 5}}, nil, now, now)
	a.take([]*kgo.Record{{Topic: "push", Offset: 1, LeaderEpoch: 6}}, now)
	s.noteEnds(map[push.Partition]logEnd{a.partition: {1, 5}}, nil, now, now)
	b := &pipeline.Batch{Tracker: a.tracker, Items: []pipeline.Item{{Offset: 1}}}
	a.tracker.Admit(b)
	if !b.Items[0].Confirm {
		t.Error("offset 1 is not confirmed")
	}
}
