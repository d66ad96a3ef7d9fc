package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/watch"
)

func TestStandstill(t *testing.T) {
	main := push.Partition{Topic: "push", ID: 1}
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	// begun returns a source with one partition that was assigned at the start. Its
	// committed offset is 100, its log's end 150, and n records are polled.
	begun := func(topics []SourceTopic, n int, stamp time.Time) (*Source, *assignment) {
		s := newSource(*options(func(o *SourceOptions) { o.Topics, o.OpenBatches = topics, 1 }), Options{}.log())
		a := part(&s.options, 1)
		a.topic = s.topics[topics[0].Name]
		s.parts[a.partition] = a
		a.begin(stand{committed: 100, unresolved: -1}, 0)
		s.noteEnds(map[push.Partition]logEnd{a.partition: {offset: 150}}, nil, at(0), at(0))
		for i := range n {
			r := retryRecord(stamp, time.Time{})
			r.Offset = int64(100 + i)
			a.take([]*kgo.Record{r}, at(0))
		}
		return s, a
	}
	out := func(s *Source, a *assignment, now time.Time) *pipeline.Batch {
		a.busy = true
		b := s.cut(a)
		if b == nil {
			t.Fatal("got no batch")
		}
		return b
	}

	t.Run("nothing to do", func(t *testing.T) {
		s, a := begun(mainTopic("push"), 0, start)
		a.committed = 150
		if still := s.Standstill(at(100)); len(still) != 0 {
			t.Errorf("got %+v, want none: there is no lag", still)
		}
		a.high = 151
		if still := s.Standstill(at(101)); len(still) != 1 || still[0].Since != at(100) || still[0].Lag != 1 {
			t.Errorf("got %+v, want a lag of 1 since it was last 0", still)
		}
	})
	t.Run("nothing is known", func(t *testing.T) {
		s, a := begun(mainTopic("push"), 0, start)
		a.high = -1
		if still := s.Standstill(at(100)); len(still) != 0 {
			t.Errorf("got %+v, want none: the lag is not known", still)
		}
	})
	t.Run("the watermark moves", func(t *testing.T) {
		s, a := begun(mainTopic("push"), 20, start)
		b := out(s, a, at(0))
		a.answeredAt = at(60)
		s.Standstill(at(1))
		b.Tracker.Done(itemsOf(b)[1:2]) // after a gap: moves nothing
		still := s.Standstill(at(30))
		if len(still) != 1 || still[0] != (watch.Standstill{Partition: main, Lag: 50, Since: at(0), Waiting: watch.WaitingNothing}) {
			t.Errorf("got %+v, want a lag of 50 since the start, without a reason", still)
		}
		b.Tracker.Done(itemsOf(b)[:1])
		still = s.Standstill(at(40))
		if len(still) != 1 || still[0] != (watch.Standstill{Partition: main, Lag: 48, Since: at(40), Waiting: watch.WaitingNothing}) {
			t.Errorf("got %+v, want a lag of 48 that moved just now", still)
		}
		if still = s.Standstill(at(70)); still[0].Since != at(40) {
			t.Errorf("got %+v, want a lag unchanged since its last move", still)
		}
	})

	reasons := []struct {
		reason string
		topics []SourceTopic
		set    func(s *Source, a *assignment)
		want   watch.Waiting
	}{
		{"records are not due", tier("push", time.Hour), nil, watch.WaitingDue},
		{"records are due", tier("push", time.Second), nil, watch.WaitingNothing},
		{"records are not due, but others are in flight", tier("push", time.Hour), func(s *Source, a *assignment) {
			a.tracker.Admit(&pipeline.Batch{Items: make([]pipeline.Item, 1)})
		}, watch.WaitingNothing},
		{"the window is full", mainTopic("push"), func(_ *Source, a *assignment) {
			a.tracker.Admit(&pipeline.Batch{Items: make([]pipeline.Item, 90)})
			a.full()
		}, watch.WaitingRoom},
		{"the windows of others are full, and some of its own records wait", mainTopic("push"), func(s *Source, _ *assignment) { s.crowded = true }, watch.WaitingRoom},
		{"the windows of others are full", mainTopic("push"), func(s *Source, a *assignment) {
			a.drop(len(a.waiting), a.waitingBytes)
			s.crowded = true
		}, watch.WaitingTurn},
		{"the windows of others are full, and some of its own records are open", mainTopic("push"), func(s *Source, a *assignment) {
			a.drop(len(a.waiting), a.waitingBytes)
			a.tracker.Admit(&pipeline.Batch{Items: make([]pipeline.Item, 1)})
			s.crowded = true
		}, watch.WaitingRoom},
		{"its former assignment has work in flight", mainTopic("push"), func(_ *Source, a *assignment) {
			former := pipeline.NewTracker(pipeline.TrackerOptions{Capacity: 10})
			former.Admit(&pipeline.Batch{Items: make([]pipeline.Item, 1)})
			former.Fence()
			a.after(&assignment{tracker: former}, at(70))
		}, watch.WaitingOwner},
		{"it is stopped", mainTopic("push"), func(_ *Source, a *assignment) { a.stopped = &PartitionError{} }, watch.WaitingStopped},
		{"the brokers do not answer", mainTopic("push"), func(_ *Source, a *assignment) { a.answeredAt = at(40) }, watch.WaitingKafka},
	}
	for _, test := range reasons {
		t.Run(test.reason, func(t *testing.T) {
			s, a := begun(test.topics, 20, start)
			a.answeredAt = at(60)
			if test.set != nil {
				test.set(s, a)
			}
			still := s.Standstill(at(60))
			if len(still) != 1 || still[0].Waiting != test.want || still[0].Lag != 50 {
				t.Errorf("got %+v, want reason %q", still, test.want)
			}
		})
	}
}

func TestTheLagOfAPausedPartitionGrows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, []string{"push"})
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, OpenBatches: 1, Linger: time.Millisecond})
	c.produce("push", 0, 0, 10)
	nextItems(t, s, 10) // the window is full: nothing more is fetched
	c.produce("push", 0, 10, 30)
	eventually(t, "the end is looked up", func() bool {
		still := s.Standstill(time.Now())
		return len(still) == 1 && still[0].Lag == 40 && still[0].Waiting == watch.WaitingRoom
	})
}

func TestTheMarksOfTransactionsAreNoLag(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, []string{"push"})
	s := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond})
	producer, err := c.options.newClient(kgo.TransactionalID("shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(t.Context(), record("push", 0, 1)).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	done(nextItems(t, s, 1)...)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := s.State()[0]; state.Committed != 1 {
		t.Fatalf("got commit %d, want 1", state.Committed)
	}
	eventually(t, "the mark behind the record is looked at", func() bool {
		state := s.State()[0]
		return state.End == 2 && len(s.Standstill(time.Now())) == 0
	})
}

func TestTheStartOfAFleetIsSpread(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	s := c.source(SourceOptions{Topics: mainTopic("push"), JoinWithin: 300 * time.Millisecond, Linger: time.Millisecond})
	c.produce("push", 0, 0, 1)
	done(nextItems(t, s, 1)...)

	never := c.source(SourceOptions{Topics: mainTopic("push"), Group: "h", JoinWithin: 1000 * time.Hour})
	if err := never.Close(t.Context()); err != nil {
		t.Errorf("closing before it has joined: %v", err)
	}
	if lags, err := c.admin().Lag(t.Context(), "h"); err == nil && len(lags) > 0 || err != nil && !strings.Contains(err.Error(), "GROUP_ID_NOT_FOUND") {
		t.Errorf("it has joined: %v, %v", lags, err)
	}
}
