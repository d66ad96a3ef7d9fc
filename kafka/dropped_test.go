package kafka

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

func TestWhenAnErrorIsDropped(t *testing.T) {
	since := start.Add(time.Hour)
	for _, row := range []struct {
		why     string
		found   time.Time
		after   time.Duration
		setting bool
		change  func(*assignment)
		want    bool
	}{
		{"it may come with the next poll", since, 0, false, nil, false},
		{"it has had long to come", since, overdue - 1, false, nil, false},
		{"it would have come", since, overdue, false, nil, true},
		{"a poll drops it of a partition that is held", since, 0, false, func(a *assignment) { a.held = true }, true},
		{"held once more, soon after it was fetched again", since, 0, false, func(a *assignment) { a.held, a.anewAt = true, since.Add(1-overdue) }, false},
		{"late once more", since, 2 * overdue, false, func(a *assignment) { a.anewAt = since.Add(overdue) }, true},
		{"offsets are set", since, 0, true, nil, true},
		{"offsets are set, soon after it was fetched again", since, 0, true, func(a *assignment) { a.anewAt = since }, true},
		{"an earlier assignment's", since.Add(-1), time.Hour, true, nil, false},
		{"the partition has ended", since, time.Hour, true, func(a *assignment) { a.end() }, false},
		{"it is stopped", since, time.Hour, true, func(a *assignment) { a.stopped = &PartitionError{} }, false},
		{"it is sent on behind such a batch anyway", since, time.Hour, true, func(a *assignment) { a.onward = &kgo.EpochOffset{} }, false},
	} {
		a := part(options(nil), 0)
		a.since = since
		if row.change != nil {
			row.change(a)
		}
		if got := a.dropped(row.found, row.found.Add(row.after), row.setting); got != row.want {
			t.Errorf("%s: got %t", row.why, got)
		}
	}
}

// The unpacking knows exactly of which partitions the client fetches no more.
func TestWhatTheClientHasNotTold(t *testing.T) {
	u, err := newUnpacking()
	if err != nil {
		t.Fatal(err)
	}
	read := func(partition int32, src []byte, records int) {
		m := kgo.FetchBatchMetrics{NumRecords: records, CompressionType: 1, CompressedBytes: len(src), UncompressedBytes: len(src)}
		if out, err := u.Decompress(src, kgo.CodecGzip); err == nil {
			m.UncompressedBytes = len(out)
		}
		u.OnFetchBatchRead(kgo.BrokerMetadata{}, "push", partition, m)
	}
	small, large := packed(t, &kgo.Record{Value: []byte("x")}), packed(t, manyHeaders(0), manyHeaders(1))
	for _, step := range []struct {
		why  string
		do   func()
		want bool
	}{
		{"nothing has come", func() {}, false},
		{"a batch that is not too large", func() { read(1, small, 1) }, false},
		{"data that is spoilt", func() { read(1, []byte("spoilt"), 0) }, false},
		{"one that is too large", func() { read(1, large, 0) }, true},
		{"records of another partition", func() { u.OnFetchRecordBuffered(&kgo.Record{Topic: "push", Partition: 2}) }, true},
		{"records before it, in the same fetch", func() { u.OnFetchRecordBuffered(&kgo.Record{Topic: "push", Partition: 1}) }, false},
		{"the first of the next fetch", func() { read(1, large, 0) }, true},
		{"its error", func() { u.told(push.Partition{Topic: "push", ID: 1}) }, false},
	} {
		step.do()
		if _, got := u.untold()[push.Partition{Topic: "push", ID: 1}]; got != step.want || len(u.untold()) > 1 {
			t.Errorf("%s: got %v", step.why, u.untold())
		}
	}
}

// Where offsets are set for another partition's sake, what the client holds of this one goes too.
func TestAnErrorThatGoesWithOthers(t *testing.T) {
	s := newSource(*options(nil), slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0, 1, 2}})
	for _, a := range s.parts {
		a.committed = 40 + int64(a.partition.ID)
	}
	s.unpacking.tooLarge = map[push.Partition]time.Time{{Topic: "push", ID: 1}: time.Now()}
	poll := func(err error) offsets {
		_, _, behind := s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "push", Partitions: []kgo.FetchPartition{{Partition: 0, HighWatermark: 50, Err: err}}}}}}, time.Now())
		return behind
	}
	if got := poll(nil); len(got) > 0 {
		t.Errorf("offsets are set at once: %v", got)
	}
	want := offsets{"push": {0: {Epoch: -1, Offset: 40}, 1: {Epoch: -1, Offset: 41}}}
	if got := poll(errors.New("spoilt")); !reflect.DeepEqual(got, want) {
		t.Errorf("with another partition's: %v, want %v", got, want)
	}
	if got := poll(nil); len(got) > 0 || len(s.unpacking.untold()) > 0 {
		t.Errorf("and once more: %v", got)
	}
	for id := range int32(4) { // nobody has the last one
		s.unpacking.tooLarge[push.Partition{Topic: "push", ID: id}] = time.Now()
	}
	s.parts[push.Partition{Topic: "push", ID: 2}].held = true
	want = offsets{"push": {0: {Epoch: -1, Offset: 40}, 1: {Epoch: -1, Offset: 41}, 2: {Epoch: -1, Offset: 42}}}
	if got := poll(nil); !reflect.DeepEqual(got, want) || len(s.unpacking.untold()) > 0 {
		t.Errorf("with one that is held: %v, want %v, and still waits for %v", got, want, s.unpacking.untold())
	}
	s.unpacking.tooLarge[push.Partition{Topic: "push", ID: 2}] = time.Now()
	if got := poll(nil); len(got) > 0 {
		t.Errorf("held once more, right after it was fetched again: %v", got)
	}
}

// What was found in an earlier assignment, or in one that is over, is forgotten, but not what is
// found meanwhile.
func TestWhatIsPastIsForgotten(t *testing.T) {
	s := newSource(*options(nil), slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0, 1, 2}})
	found := func(id int32) (push.Partition, time.Time) {
		p := push.Partition{Topic: "push", ID: id}
		return p, s.parts[p].since
	}
	earlier, since := found(0)
	over, at := found(1)
	now, later := found(2)
	s.parts[over].end()
	s.unpacking.tooLarge = map[push.Partition]time.Time{earlier: since.Add(-1), over: at, now: later}
	var behind offsets
	s.fetchDropped(&behind, later)
	if got := s.unpacking.untold(); len(got) != 1 || got[now].IsZero() || len(behind) > 0 {
		t.Errorf("it waits for the errors of %v, and fetches again from %v", got, behind)
	}
	s.unpacking.forget(now, later.Add(-1))
	if len(s.unpacking.untold()) != 1 {
		t.Error("what was found meanwhile is forgotten, too")
	}
	s.unpacking.forget(now, later)
	if len(s.unpacking.untold()) != 0 {
		t.Error("it is not forgotten")
	}
}

// What is dead of a batch that is too large are the records from the position on.
func TestWhatIsLeftOut(t *testing.T) {
	for _, row := range []struct {
		why                  string
		position, from, want int64
	}{
		{"it begins at the position", 5, 5, 5},
		{"it begins before it, as a commit may end within a batch", 7, 5, 7},
		{"there is a gap before it, as of compacted records", 5, 8, 8},
	} {
		a := part(options(nil), 0)
		a.next = row.position
		a.leaveOut(&kgo.ErrDecompressTooLarge{Offset: row.from, NextOffset: 20})
		if want := (Range{From: row.want, To: 20}); a.unread != want {
			t.Errorf("%s: %v is left out, want %v", row.why, a.unread, want)
		}
	}
}

// manyHeaders is a record with more than half of what a batch may take unpacked, in 1.7 MB that
// pack to nearly nothing: two of them are quickly made, unlike 64 MiB of values.
func manyHeaders(int) *kgo.Record { return &kgo.Record{Headers: make([]kgo.RecordHeader, 850_000)} }

// dropping is a source of the two partitions of the topic t, with a broker in virtual time.
type dropping struct {
	*virtual
	s      *Source
	writer *kgo.Client
	yields atomic.Bool
	slow   atomic.Bool  // answers of brokers take long
	again  atomic.Int32 // how often a dropped error was fetched again
}

func newDropping(t *testing.T, linger time.Duration) *dropping {
	t.Helper()
	d := &dropping{virtual: newVirtual(t, kfake.SeedTopics(2, "t"))}
	var err error
	if d.writer, err = kgo.NewClient(kgo.SeedBrokers(d.ListenAddrs()...), kgo.Dialer(d.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0)); err != nil {
		t.Fatal(err)
	}
	o := d.options(func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.network.DialContext(ctx, network, address)
		return lateConn{c, &d.slow}, err
	})
	o.Log = slog.New(slog.NewTextHandler(d, nil))
	if d.s, err = NewSource(o, SourceOptions{Topics: mainTopic("t"), Group: "g", Linger: linger, Yields: d.yields.Load}); err != nil {
		t.Fatal(err)
	}
	d.s.Join()
	return d
}

// lateConn reads slowly while that is set.
type lateConn struct {
	net.Conn
	slow *atomic.Bool
}

func (c lateConn) Read(b []byte) (int, error) {
	if c.slow.Load() {
		time.Sleep(15 * time.Millisecond)
	}
	return c.Conn.Read(b)
}

// Write counts what the source logs.
func (d *dropping) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("fetching it again")) {
		d.again.Add(1)
	}
	return len(line), nil
}

func (d *dropping) close() {
	if err := d.s.Close(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	d.writer.Close()
}

func (d *dropping) produce(partition int32, n int) {
	for range n {
		if err := d.writer.ProduceSync(d.t.Context(), &kgo.Record{Topic: "t", Partition: partition, Value: []byte("x")}).FirstErr(); err != nil {
			d.t.Error(err)
		}
	}
}

func (d *dropping) produceRaw(partition int32, raw []byte) {
	d.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, raw
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", TopicID: d.TopicInfo("t").TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	resp, err := req.RequestWith(d.t.Context(), d.writer)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// produceInTransaction leaves a marker behind the record.
func (d *dropping) produceInTransaction(partition int32) {
	d.t.Helper()
	writer, err := kgo.NewClient(kgo.SeedBrokers(d.ListenAddrs()...), kgo.Dialer(d.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("one"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.BeginTransaction(); err != nil {
		d.t.Fatal(err)
	}
	if err := writer.ProduceSync(d.t.Context(), &kgo.Record{Topic: "t", Partition: partition, Value: []byte("x")}).FirstErr(); err != nil {
		d.t.Fatal(err)
	}
	if err := writer.EndTransaction(d.t.Context(), kgo.TryCommit); err != nil {
		d.t.Fatal(err)
	}
}

// rest makes the source rest after a record of partition 0 came alone.
func (d *dropping) rest() {
	d.t.Helper()
	d.produce(0, 1)
	d.drained(d.s, 0, 1)
	synctest.Wait()
}

// ends returns where the log of a partition ends.
func (d *dropping) ends(partition int32) int64 {
	return d.PartitionInfo("t", partition).HighWatermark
}

// inOrder ends batches until n offsets of partition 1 have come. All come in order, also those of
// partition 0, and those of partition 1 that dead says as dead.
func (d *dropping) inOrder(n int64, dead func(offset int64) bool) {
	d.t.Helper()
	for next := map[int32]int64{0: -1}; next[1] < n; {
		b, err := d.s.Next(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		for _, it := range itemsOf(b) {
			want, one := next[b.Partition.ID], b.Partition.ID == 1
			if it.Offset != want && want >= 0 || (it.Reason == push.TooLarge) != (one && dead(it.Offset)) {
				d.t.Fatalf("partition %d: offset %d is %v (%s) where %d is next", b.Partition.ID, it.Offset, it.Verdict, it.Reason, want)
			}
			next[b.Partition.ID] = it.Offset + 1
		}
		done(b)
		if err := d.s.Commit(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
}

// A partition goes on although the client has dropped the error of a batch that is too large to
// unpack, while it held it for the next poll.
func TestAPartitionGoesOnBehindADroppedError(t *testing.T) {
	for _, row := range []struct {
		why    string
		drop   func(*dropping)
		within time.Duration
	}{
		{"the partition is paused by then", func(d *dropping) {
			d.yields.Store(true)
			time.Sleep(time.Minute)
			d.yields.Store(false)
		}, time.Second},
		{"it is paused for short, often", func(d *dropping) {
			for range 200 {
				d.yields.Store(!d.yields.Load())
				time.Sleep(110 * time.Millisecond)
			}
		}, time.Second},
		{"the consumer session ends", func(d *dropping) {
			d.s.client.SetOffsets(offsets{"t": {0: {Epoch: -1, Offset: 2}}}) // as a leader that moves would
			d.s.client.SetOffsets(offsets{"t": {0: {Epoch: -1, Offset: 1}}})
		}, overdue + 2*time.Second},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDropping(t, 500*time.Millisecond)
				d.rest()
				d.produceRaw(1, rawBatch(t, true, 2, manyHeaders))
				synctest.Wait() // the client has fetched it, and holds its error until the rest is over
				d.produce(1, 3)
				row.drop(d)
				began := time.Now()
				late := time.AfterFunc(time.Hour, func() { panic("the partition stands still") })
				d.inOrder(5, func(offset int64) bool { return offset < 2 })
				late.Stop()
				if took := time.Since(began); took > row.within || d.again.Load() == 0 {
					t.Errorf("it went on after %v, fetched again %d times; want within %v", took, d.again.Load(), row.within)
				}
				d.close()
			})
		})
	}
}

// Nothing is handed out twice, or left out, if the client has dropped nothing and a broker is only
// slow: what was on its way, or held for the next poll, is forgotten when the offset is set.
func TestFetchedAgainForNothing(t *testing.T) {
	const n = 100
	synctest.Test(t, func(t *testing.T) {
		d := newDropping(t, 20*time.Millisecond)
		d.rest()
		time.Sleep(overdue)
		d.slow.Store(true)
		var working sync.WaitGroup
		working.Go(func() {
			for i := range 20 * n {
				d.produce(0, 1)
				if i%20 == 0 {
					d.produce(1, 1)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		working.Go(func() {
			for p := (push.Partition{Topic: "t", ID: 1}); d.ends(1) < n; time.Sleep(170 * time.Millisecond) {
				d.s.mu.Lock()
				d.s.parts[p].anewAt = time.Time{}
				d.s.mu.Unlock()
				d.s.unpacking.mu.Lock()
				d.s.unpacking.tooLarge[p] = time.Now().Add(-overdue)
				d.s.unpacking.mu.Unlock()
			}
		})
		d.inOrder(n, func(int64) bool { return false })
		working.Wait()
		if d.again.Load() < 50 {
			t.Errorf("fetched again %d times, want often", d.again.Load())
		}
		d.slow.Store(false)
		d.close()
	})
}

// Where nothing was dropped nothing is fetched again: not of a partition that is paused, nor of one
// that has only batches without records, nor of one that stands at its end.
func TestNothingIsFetchedAgainWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDropping(t, 20*time.Millisecond)
		d.produceRaw(1, rawBatch(t, true, 4, func(int) *kgo.Record { return &kgo.Record{Value: []byte("x")} }))
		d.produce(0, 2)
		d.inOrder(4, func(int64) bool { return false })
		time.Sleep(10 * overdue) // at its end
		d.yields.Store(true)
		d.produce(1, 1)
		time.Sleep(10 * overdue) // paused, with a lag
		d.yields.Store(false)
		d.drained(d.s, 1, 1)
		d.produceInTransaction(1)
		d.drained(d.s, 1, 1)
		time.Sleep(10 * overdue) // its tail has no records
		d.produce(1, 1)
		d.drained(d.s, 1, 1)
		if n := d.again.Load(); n > 0 {
			t.Errorf("fetched again %d times", n)
		}
		d.close()
	})
}

// A sound batch whose unpacked size is the packed size of one that is too large, whichever is
// reported first.
func TestABatchTooLargeBesideOneOfItsSize(t *testing.T) {
	large := packed(t, manyHeaders(0), manyHeaders(1))
	for _, soundFirst := range []bool{false, true} {
		u, err := newUnpacking()
		if err != nil {
			t.Fatal(err)
		}
		reports := []func(){
			func() {
				u.OnFetchBatchRead(kgo.BrokerMetadata{}, "push", 1, kgo.FetchBatchMetrics{CompressionType: 1, CompressedBytes: len(large), UncompressedBytes: len(large)})
			},
			func() {
				u.OnFetchBatchRead(kgo.BrokerMetadata{}, "push", 2, kgo.FetchBatchMetrics{NumRecords: 3, CompressionType: 1, CompressedBytes: 10, UncompressedBytes: len(large)})
			},
		}
		if _, err := u.Decompress(large, kgo.CodecGzip); err == nil {
			t.Fatal("setup")
		}
		sound := unpacked{size: len(large), cost: 1000, at: time.Now()} // another broker's
		if soundFirst {
			slices.Reverse(reports)
			u.loose = append(u.loose, sound)
		} else {
			u.loose = append([]unpacked{sound}, u.loose...)
		}
		for _, report := range reports {
			report()
		}
		if _, ok := u.untold()[push.Partition{Topic: "push", ID: 1}]; !ok {
			t.Errorf("sound first %v: the too large one is not marked: a dropped error of it is never noticed", soundFirst)
		}
		if len(u.loose) > 0 || u.shares[push.Partition{Topic: "push", ID: 2}] == nil {
			t.Errorf("sound first %v: the other one is not counted: loose %v, shares %v", soundFirst, u.loose, u.shares)
		}
	}
}

// at_most_once: what is read again lies below the committed offset.
func TestADroppedErrorWithinWhatIsReadAgain(t *testing.T) {
	o := options(func(o *SourceOptions) { o.Reread = 500 })
	s := newSource(*o, slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
	a := s.parts[push.Partition{Topic: "push"}]
	a.begin(stand{committed: 100, unresolved: 60}, 0)
	rs := sized(10, 10, time.Now())
	for i := range rs {
		rs[i].Offset = 60 + int64(i)
	}
	a.take(rs, time.Now())
	s.unpacking.tooLarge = map[push.Partition]time.Time{a.partition: time.Now()}
	a.held = true
	_, _, behind := s.take(nil, time.Now())
	if got := behind["push"][0].Offset; got != 70 {
		t.Errorf("fetched again from %d, want 70: 70 to 99 are not read again", got)
	}
}

// The member is refused while the client holds the error of a partition of which nothing was read,
// and keeps the partition when it joins again: the client takes no offset for a new one at which
// it believes to be.
func TestAPartitionThatIsKeptGoesOnBehindADroppedError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDropping(t, 500*time.Millisecond)
		d.rest()
		time.Sleep(2 * time.Second)
		d.produce(0, 1)
		b, err := d.s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done(b)
		synctest.Wait() // it rests
		d.produceRaw(1, rawBatch(t, true, 2, manyHeaders))
		synctest.Wait() // the client holds its error
		if len(d.s.unpacking.untold()) != 1 {
			t.Fatal("setup: not fetched", d.s.unpacking.untold())
		}
		time.Sleep(50 * time.Millisecond) // still in the rest
		refusal := d.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.IllegalGeneration, Count: 1})
		_ = d.s.Commit(t.Context()) // the refusal is the setup
		refusal.Remove()
		d.produce(1, 3)
		late := time.AfterFunc(time.Hour, func() { panic("the partition stands still") })
		d.inOrder(5, func(offset int64) bool { return offset < 2 })
		late.Stop()
		d.close()
	})
}
