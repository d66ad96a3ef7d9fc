package kafka

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

// troubles keeps the current trouble of each partition, as /readyz does.
type troubles struct {
	mu  sync.Mutex
	now map[push.Partition]error
	all []error
}

// health is a SourceOptions.Health.
func (t *troubles) health(p push.Partition, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		t.now = make(map[push.Partition]error)
	}
	if err == nil {
		delete(t.now, p)
		return
	}
	t.now[p], t.all = err, append(t.all, err)
}

func (t *troubles) of(p push.Partition) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now[p]
}

func (t *troubles) told() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]error(nil), t.all...)
}

// A fetch error from a broker may pass. The partition is reported while it lasts, and
// goes on afterwards.
func TestAFetchErrorThatMayPassStopsNothing(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.UnknownServerError, kerr.TopicAuthorizationFailed, kerr.KafkaStorageError, kerr.CorruptMessage} {
		t.Run(refusal.Message, func(t *testing.T) {
			c := newCluster(t, 2, []string{"push"})
			c.produce("push", 0, 0, 10)
			c.produce("push", 1, 0, 10)
			refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "push", Partitions: []int32{0}, Err: refusal, Count: -1})
			var told troubles
			s := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond, Health: told.health})
			done(nextItems(t, s, 10)...)
			p := push.Partition{Topic: "push"}
			eventually(t, "the partition is named", func() bool { return errors.Is(told.of(p), refusal) })
			refused.Remove()
			for _, b := range nextItems(t, s, 10) {
				if b.Partition != p {
					t.Errorf("got a batch of %v", b.Partition)
				}
				done(b)
			}
			eventually(t, "the partition is no longer named", func() bool { return told.of(p) == nil })
			for _, err := range told.told() {
				if _, stopped := errors.AsType[*PartitionError](err); stopped {
					t.Errorf("the partition stopped: %v", err)
				}
			}
			if err := s.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if at := c.committed("g", "push", 0); at != 10 {
				t.Errorf("got commit %d, want 10", at)
			}
		})
	}
}

// A partition stops if its records are gone, or if fetched data cannot be read.
func TestWhatAFetchErrorMeans(t *testing.T) {
	for _, tt := range []struct {
		reason   string
		err      error
		withData bool
		gone     bool
		spoilt   bool
	}{
		{"the offset is gone", kerr.OffsetOutOfRange, true, true, false},
		{"the log was cut short", &kgo.ErrDataLoss{Topic: "push"}, false, true, false},
		{"records that are no records", errors.New("encoded crc 1 does not match calculated crc 2"), true, false, true},
		{"the broker's own trouble", kerr.UnknownServerError, true, false, false},
		{"the broker's own trouble, about data", kerr.UnsupportedCompressionType, false, false, false},
		{"no right to read", kerr.TopicAuthorizationFailed, false, false, false},
		{"the topic was made anew", kerr.UnknownTopicID, false, false, false},
		{"a request that got no answer", errors.New("connection reset by peer"), false, false, false},
	} {
		if gone, spoilt := isGone(tt.err), isSpoilt(tt.err, tt.withData); gone != tt.gone || spoilt != tt.spoilt {
			t.Errorf("%s: got gone %v, spoilt %v; want %v, %v", tt.reason, gone, spoilt, tt.gone, tt.spoilt)
		}
	}
}

// A moving leader is no trouble unless it lasts. A broker that refuses is not asked again
// at once.
func TestRetriableErrorsAreNamedWhenTheyLast(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	s := newSource(*options(func(o *SourceOptions) { o.Metrics = m }), slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
	p := push.Partition{Topic: "push"}
	a := s.parts[p]
	a.begin(stand{committed: 5, unresolved: -1}, 0)
	began := time.Now()
	for _, step := range []struct {
		after time.Duration
		named bool
	}{{0, false}, {passing - 1, false}, {passing, true}, {passing + 2*silence, false}, {2*passing + 2*silence, true}} {
		now := began.Add(step.after)
		a.fetchFailed(kerr.NotLeaderForPartition, false, 0, now)
		if named := a.trouble() != nil; named != step.named {
			t.Errorf("after %v: got named %v, want %v", step.after, named, step.named)
		}
		if _, paused, again := s.reserve(now); !paused[p] || !again.Equal(now.Add(refetch)) {
			t.Errorf("after %v: got paused %v until %v, want until %v", step.after, paused[p], again, now.Add(refetch))
		}
		if _, paused, _ := s.reserve(now.Add(refetch)); paused[p] {
			t.Errorf("after %v: paused for longer than %v", step.after, refetch)
		}
	}
	if n := testutil.ToFloat64(m.fetchErrors.WithLabelValues("push")); n != 5 {
		t.Errorf("got %v errors counted, want 5", n)
	}
}

// An error is reported until a record comes, or until there is nothing to read and the
// error has not come again for long.
func TestAnOldErrorOfAnIdlePartitionIsForgotten(t *testing.T) {
	var told troubles
	s := newSource(*options(func(o *SourceOptions) { o.Health = told.health }), slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
	p := push.Partition{Topic: "push"}
	a := s.parts[p]
	a.begin(stand{committed: 5, unresolved: -1}, 0)
	failedAt := time.Now()
	a.fetchFailed(kerr.TopicAuthorizationFailed, false, 0, failedAt)
	for _, step := range []struct {
		reason string
		end    int64
		after  time.Duration
		named  bool
	}{
		{"just now", 5, 0, true},
		{"long ago, but there is something to read", 6, 2 * silence, true},
		{"a while ago", 5, silence, true},
		{"long ago", 5, 2 * silence, false},
	} {
		a.high = step.end
		s.noteEnds(map[push.Partition]logEnd{p: {offset: step.end}}, nil, failedAt.Add(step.after), failedAt.Add(step.after))
		s.tellHealth()
		if named := told.of(p) != nil; named != step.named {
			t.Errorf("%s: got named %v, want %v", step.reason, named, step.named)
		}
	}
}

// A stopped partition is reported only by its owner, not by its former owner.
func TestAStoppedPartitionThatMovesIsNamedNoLonger(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	if err := c.DeleteRecords("push", 0, 8); err != nil {
		t.Fatal(err)
	}
	c.commitAt("g", "push", 5)
	var told troubles
	s := c.source(SourceOptions{Topics: mainTopic("push"), Health: told.health})
	p := push.Partition{Topic: "push"}
	eventually(t, "the partition is named", func() bool { return told.of(p) != nil })
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := told.of(p); err != nil {
		t.Errorf("a partition that left is still named: %v", err)
	}
}

// Records that cannot be unpacked have the same bounds as others: the window of their
// partition, and the open records of all partitions.
func TestRecordsThatCannotBeUnpackedKeepTheBounds(t *testing.T) {
	for _, tt := range []struct{ records, batches, all, want int }{
		{100, 4, 10_000, 400},
		{100, 4, 250, 250},
	} {
		s := newSource(*options(func(o *SourceOptions) { o.BatchRecords, o.OpenBatches, o.OpenRecords = tt.records, tt.batches, tt.all }), slog.New(slog.DiscardHandler))
		s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
		a := s.parts[push.Partition{Topic: "push"}]
		a.begin(stand{committed: 5, unresolved: -1}, 0)
		a.leaveOut(&kgo.ErrDecompressTooLarge{Offset: 5, NextOffset: 1_000_000})
		for range 50 {
			s.reserve(time.Now())
		}
		if open, _ := a.open(); open != tt.want {
			t.Errorf("got %d open records, want %d", open, tt.want)
		}
	}
}
