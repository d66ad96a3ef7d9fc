package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// outlasting is the session of newOwner.
const outlasting = 10 * time.Second

// newOwner returns a source with an assignment that began now.
func newOwner() (s *Source, a *assignment, began time.Time) {
	s = newSource(*options(func(o *SourceOptions) { o.Topics, o.Session, o.Confirms = mainTopic("push"), outlasting, 100 }), Options{}.log())
	began = time.Now()
	a = newAssignment(&s.options, s.topics["push"], 0, newLease(), began)
	s.parts[a.partition] = a
	return s, a, began
}

// hands hands out offsets, and returns which of them are to be confirmed.
func (a *assignment) hands(offsets ...int64) (confirmed []bool) {
	b := &pipeline.Batch{Tracker: a.tracker}
	for _, o := range offsets {
		b.Items = append(b.Items, pipeline.Item{Offset: o})
	}
	a.tracker.Admit(b)
	for i := range b.Items {
		confirmed = append(confirmed, b.Items[i].Confirm)
	}
	return confirmed
}

// A former owner may send, and read what it sends, until its lease has lapsed: up to a
// session after this assignment began. What the log had at an earlier moment, or was
// asked for at one, bounds nothing.
func TestFormerOwnersAreOutlastedAfterASession(t *testing.T) {
	s, a, began := newOwner()
	next := int64(0)
	confirmed := func() bool {
		next++
		return a.hands(next - 1)[0]
	}
	for _, look := range []struct {
		asked, answered time.Duration
		end             int64
		confirmed       []bool // of the next records
		why             string
	}{
		{0, time.Second, 1, []bool{true, true}, "former owners may have their leases"},
		{outlasting - time.Second, outlasting + time.Minute, 2, []bool{true}, "it was asked before their leases had lapsed"},
		{outlasting, outlasting, 2, []bool{true}, "they lapse now"},
		{outlasting + time.Second, outlasting + time.Second, 6, []bool{true, true, false, false}, "4 and 5 came before that, and may have been read"},
		{outlasting + time.Minute, outlasting + time.Minute, 9, []bool{false, false}, "what came later is nobody else's"},
	} {
		s.noteEnds(map[push.Partition]logEnd{a.partition: {offset: look.end}}, nil, began.Add(look.asked), began.Add(look.answered))
		for _, want := range look.confirmed {
			if at := next; confirmed() != want {
				t.Errorf("asked after %v: offset %d confirmed %t, want %t: %s", look.asked, at, !want, want, look.why)
			}
		}
	}
}

// Brokers may answer late. What they say is of any time between question and answer.
func TestALogsEndIsAsOldAsTheQuestion(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 3)
	s := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond})
	first := nextItems(t, s, 3)[0]
	a := s.parts[first.Tracker.Partition()]
	late := true // asked within the session, answered after it; guarded by s.mu
	c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		s.mu.Lock()
		defer s.mu.Unlock()
		if late {
			a.since = time.Now().Add(-s.options.Session)
		}
		return nil, nil, false
	})
	for _, want := range []bool{false, true} {
		s.mu.Lock()
		late, a.since = !want, time.Now().Add(-s.options.Session-time.Minute)
		s.mu.Unlock()
		s.lookOnce(t.Context())
		if s.mu.Lock(); a.outlasted != want {
			t.Errorf("an answer that came late (%t): former owners are outlasted %t, want %t", late, a.outlasted, want)
		}
		s.mu.Unlock()
	}
	c.produce("push", 0, 3, 1)
	if next := nextItems(t, s, 1)[0]; next.Items[0].Confirm || !first.Items[0].Confirm {
		t.Errorf("the first record is confirmed %t, want true; the one after all former owners %t, want false", first.Items[0].Confirm, next.Items[0].Confirm)
	}
}

// A broker may be behind, as one that has just become a partition's leader. What is known
// to be in the log by then may have been read by a former owner, whatever it answers.
func TestABrokerThatIsBehindHidesNothingFromConfirms(t *testing.T) {
	s, a, began := newOwner()
	for _, look := range []struct {
		after time.Duration
		end   int64
	}{{time.Second, 3}, {outlasting + time.Second, 1}} {
		s.noteEnds(map[push.Partition]logEnd{a.partition: {offset: look.end}}, nil, began.Add(look.after), began.Add(look.after))
	}
	if got := a.hands(0, 1, 2, 3); !slices.Equal(got, []bool{true, true, true, false}) {
		t.Errorf("0 to 3 are confirmed %v, want all but the last one", got)
	}
}

// A broker that the cluster has cut off answers as the leader that it was. What a former
// owner has read from its successor may lie behind the end that it tells: such records are
// of a later leader, and are confirmed until one of that epoch tells an end.
func TestALeaderThatWasCutOffHidesNothingFromConfirms(t *testing.T) {
	s, a, began := newOwner()
	now := began.Add(2 * outlasting)
	tells := func(end int64, epoch int32) func() {
		return func() {
			s.noteEnds(map[push.Partition]logEnd{a.partition: {end, epoch}}, nil, now, now)
		}
	}
	for _, step := range []struct {
		what      string
		do        func()
		offset    int64
		epoch     int32
		confirmed bool
	}{
		{"a broker that tells no epoch may be any", tells(0, -1), 0, 5, true},
		{"the leader has told an end", tells(1, 5), 1, 5, false},
		{"a record of a later leader", func() {}, 2, 6, true},
		{"the former one tells an end again", tells(3, 5), 3, 6, true},
		{"the present one does", tells(4, 6), 4, 6, false},
		{"a record of a former leader comes from the present one as well", func() {}, 5, 5, false},
		{"a record without an epoch", func() {}, 6, -1, false},
	} {
		step.do()
		a.take([]*kgo.Record{{Topic: "push", Offset: step.offset, LeaderEpoch: step.epoch}}, now)
		if got := a.hands(step.offset)[0]; got != step.confirmed {
			t.Errorf("%s: offset %d is confirmed %t, want %t", step.what, step.offset, got, step.confirmed)
		}
	}
}

// Kafka tells the epoch of who answers.
func TestRealLeadersTellTheirEpoch(t *testing.T) {
	topic := ownName(t)
	c := realCluster(t, TopicSpec{Name: topic, Partitions: 1, Replication: 1})
	c.produce(topic, 0, 0, 1)
	s := c.source(SourceOptions{Topics: mainTopic(topic), Group: topic, Linger: time.Millisecond})
	first := nextItems(t, s, 1)[0]
	s.mu.Lock()
	a := s.parts[first.Tracker.Partition()]
	a.since = a.since.Add(-2 * s.options.Session)
	s.mu.Unlock()
	s.lookOnce(t.Context())
	if epoch := s.leaderEpoch(a.partition); epoch < 0 || epoch != a.epoch {
		t.Errorf("read from a leader of epoch %d, and %d is told", epoch, a.epoch)
	}
	c.produce(topic, 0, 1, 1)
	if next := nextItems(t, s, 1)[0]; next.Items[0].Confirm || !first.Items[0].Confirm {
		t.Errorf("the first record is confirmed %t, want true; the one after all former owners %t, want false", first.Items[0].Confirm, next.Items[0].Confirm)
	}
}

// A partition that was lost and is ours again may have had another owner in between,
// whom the assignment before it has not outlasted.
func TestWhatWasLostIsConfirmedAnew(t *testing.T) {
	_, s := assigned(t)
	for _, a := range s.parts {
		a.since = a.since.Add(-2 * s.options.Session)
	}
	s.lookOnce(t.Context())
	before := s.owned().owned
	s.lose(s.owned())
	s.begin(t, generation{"a", 1}, nil)
	s.reclaimLost(t.Context())
	s.lookOnce(t.Context())
	for _, a := range before {
		now := s.parts[a.partition]
		b := &pipeline.Batch{Tracker: now.tracker, Items: []pipeline.Item{{Offset: a.high}}}
		now.tracker.Admit(b)
		if !a.outlasted || now == a || now.outlasted || !b.Items[0].Confirm {
			t.Errorf("partition %d: outlasted %t, began anew %t; then outlasted %t, confirmed %t; want the first record confirmed", a.partition.ID, a.outlasted, now != a, now.outlasted, b.Items[0].Confirm)
		}
	}
}

// A look may find the successor of a leader that was cut off before the first record of
// the successor is taken, as of a partition that is paused. What the former leader has told
// is in doubt then as well: a former owner may have read all that the successor has by now.
func TestALaterLeaderThatTellsAnEndFirstHidesNothingFromConfirms(t *testing.T) {
	s, a, began := newOwner()
	now := began.Add(2 * outlasting)
	for _, end := range []logEnd{{1, 5}, {3, 6}} { // cut off; its successor
		s.noteEnds(map[push.Partition]logEnd{a.partition: end}, nil, now, now)
		now = now.Add(lookEvery)
	}
	a.take([]*kgo.Record{{Topic: "push", Offset: 2, LeaderEpoch: 6}}, now)
	if !a.hands(2)[0] {
		t.Error("offset 2, behind the end that the former leader told, is not confirmed")
	}
}

// A leader tells its high watermark as the end. What it has given to its followers and they
// have not acknowledged lies behind that, and when the leader is cut off it is its
// successor's, who lets it be read; the records are of the former epoch.
func TestRecordsOfTheEpochOfALeaderThatWasCutOffAreHiddenFromNoConfirm(t *testing.T) {
	s, a, began := newOwner()
	now := began.Add(2 * outlasting)
	// The leader of epoch 5 has offsets 0 to 3, and was cut off when only 0 was acknowledged.
	s.noteEnds(map[push.Partition]logEnd{a.partition: {1, 5}}, nil, now, now)
	// All are read from the leader of epoch 6, which has one record of its own.
	s.leaderEpoch = func(push.Partition) int32 { return 6 }
	s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "push", Partitions: []kgo.FetchPartition{{HighWatermark: 4,
		Records: []*kgo.Record{{Topic: "push", Offset: 1, LeaderEpoch: 5}}}}}}}}, time.Now())
	if !a.hands(1)[0] {
		t.Error("offset 1, which a former owner may have read from the successor, is not confirmed")
	}
}

// Records wait between when they are taken and when they are handed out. An end that a
// leader tells meanwhile that was cut off before says nothing about them, nor does the end
// of a broker that tells no epoch; that of their own leader does.
func TestWhatWaitsIsHiddenFromNoConfirmByALeaderThatWasCutOff(t *testing.T) {
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
		s, a, began := newOwner()
		now := began.Add(2 * outlasting)
		a.take([]*kgo.Record{{Topic: "push", Offset: 1, LeaderEpoch: tt.taken}}, now)
		s.noteEnds(map[push.Partition]logEnd{a.partition: tt.end}, nil, now, now)
		if tt.then != -2 {
			a.take([]*kgo.Record{{Topic: "push", Offset: 2, LeaderEpoch: tt.then}}, now)
		}
		if got := a.hands(1)[0]; got != tt.confirmed {
			t.Errorf("%s: confirmed %t, want %t", tt.what, got, tt.confirmed)
		}
	}
}

// After records of a later leader are taken, an end of the former one says nothing, also
// if more records are taken before they are handed out.
func TestAFormerLeadersEndAfterADoubtHidesNothingFromConfirms(t *testing.T) {
	s, a, began := newOwner()
	now := began.Add(2 * outlasting)
	s.noteEnds(map[push.Partition]logEnd{a.partition: {1, 5}}, nil, now, now)
	a.take([]*kgo.Record{{Topic: "push", Offset: 1, LeaderEpoch: 6}}, now)
	s.noteEnds(map[push.Partition]logEnd{a.partition: {1, 5}}, nil, now, now)
	if !a.hands(1)[0] {
		t.Error("offset 1 is not confirmed")
	}
}
