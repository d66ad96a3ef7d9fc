//go:build !race

// Tens of MiB are packed and unpacked here, by one goroutine each time. The race detector makes
// minutes of that and has nothing to see in it: deploy/local/raceless.sh runs these.

package kafka

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// A batch that is too large to unpack is skipped: each of its offsets becomes a dead
// letter, and the partition goes on, also after a restart between these offsets.
func TestABatchTooLargeToUnpackIsDead(t *testing.T) {
	bomb := rawBatch(t, true, 33, func(int) *kgo.Record { return &kgo.Record{Value: make([]byte, 2<<20)} })
	for _, topics := range [][]SourceTopic{mainTopic("push"), tier("push", time.Millisecond)} {
		c := newCluster(t, 2, []string{"push"})
		records := func(partition int32, from, n int) {
			for i := range n {
				r := record("push", partition, from+i)
				r.Headers = []kgo.RecordHeader{header("pf-v", "1")}
				c.produceRecords(r)
			}
		}
		records(0, 0, 3)
		c.produceRaw("push", 0, bomb)
		records(0, 36, 4)
		records(1, 0, 5)

		var told troubles
		options := SourceOptions{Topics: topics, BatchRecords: 10, Linger: time.Millisecond, Drain: mortal, Health: told.health}
		first := c.source(options)
		var items []*pipeline.Item
		for got := 0; got < 25; { // then its window is full
			for _, b := range nextItems(t, first, 1) {
				if b.Partition.ID == 0 {
					items, got = append(items, itemsOf(b)...), got+len(b.Items)
				}
				done(b)
			}
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := c.committed("g", "push", 0)
		items = items[:at]
		second := c.source(options)
		for len(items) < 40 {
			for _, b := range nextItems(t, second, 1) {
				if b.Partition.ID == 0 {
					items = append(items, itemsOf(b)...)
				}
				done(b)
			}
		}
		for i, it := range items {
			unread := i >= 3 && i < 36
			if it.Offset != int64(i) {
				t.Fatalf("got offset %d as record %d", it.Offset, i)
			}
			if dead := it.Verdict == push.Dead; dead != unread {
				t.Errorf("offset %d: got %v (%s)", i, it.Verdict, it.Reason)
			}
			if unread && (it.Reason != push.TooLarge || it.Detail != "batch" || it.Size != maxUnpacked || it.Value != nil || it.FirstSeen.IsZero()) {
				t.Errorf("offset %d: %s:%s of %d bytes, first seen %v", i, it.Reason, it.Detail, it.Size, it.FirstSeen)
			}
		}
		if err := second.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := c.committed("g", "push", 0); at != 40 {
			t.Errorf("got commit %d, want 40", at)
		}
		if all := told.told(); len(all) > 0 {
			t.Errorf("got stopped partitions %v, want none", all)
		}
	}
}

// The partition goes on too if nothing was read or committed before the batch.
func TestABatchTooLargeToUnpackAtTheVeryStart(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	c.produceBatch("push", 0, true, 33, func(int) *kgo.Record { return &kgo.Record{Value: make([]byte, 2<<20)} })
	c.produce("push", 0, 33, 2)
	s := c.source(SourceOptions{Topics: mainTopic("push"), Linger: time.Millisecond})
	var dead, alive int
	for _, b := range nextItems(t, s, 35) {
		for _, it := range itemsOf(b) {
			if it.Verdict == push.Dead {
				dead++
			} else {
				alive++
			}
		}
	}
	if dead != 33 || alive != 2 {
		t.Errorf("got %d dead and %d alive, want 33 and 2", dead, alive)
	}
}

// A batch too large to unpack is an error of one poll. Then the consumer goes on.
func TestAConsumerGoesOnBehindABatchTooLargeToUnpack(t *testing.T) {
	c := newCluster(t, 1, []string{"push.feedback"})
	c.produceBatch("push.feedback", 0, true, 33, func(int) *kgo.Record { return &kgo.Record{Value: make([]byte, 2<<20)} })
	c.produce("push.feedback", 0, 0, 2)
	_, poll := c.consumerOf("push.feedback")
	if rs, err := poll(); len(rs) > 0 || !errors.Is(err, kgo.ErrMaxDecompress) {
		t.Fatalf("got %d records, error %v", len(rs), err)
	}
	if rs, err := poll(); err != nil || len(rs) != 2 {
		t.Errorf("got %d records, error %v; want the 2 after it", len(rs), err)
	}
}

// Unpacked records that are not handed out are bounded over all partitions. Their room is
// free again with the last record of a fetch, handed out or dropped.
func TestUnpackingIsBoundedOverAllPartitions(t *testing.T) {
	u, err := newUnpacking()
	if err != nil {
		t.Fatal(err)
	}
	batch := packed(t, &kgo.Record{Value: make([]byte, 30<<20)})
	read := func(partition int32) error {
		out, err := u.Decompress(batch, kgo.CodecGzip)
		if err == nil {
			u.OnFetchBatchRead(kgo.BrokerMetadata{}, "push", partition, kgo.FetchBatchMetrics{CompressionType: 1, UncompressedBytes: len(out)})
		}
		return err
	}
	in := func(partition int32, n int) {
		for range n {
			u.OnFetchRecordBuffered(&kgo.Record{Topic: "push", Partition: partition})
		}
	}
	out := func(partition int32, n int) {
		for range n {
			u.OnFetchRecordUnbuffered(&kgo.Record{Topic: "push", Partition: partition}, false)
		}
	}
	for _, step := range []struct {
		reason    string
		before    func()
		partition int32
		want      error
	}{
		{"the first", func() {}, 1, nil},
		{"another partition's", func() { in(1, 3) }, 2, nil},
		{"a third is too much", func() { in(2, 3) }, 3, errNoRoom},
		{"some of a fetch are out, which gives nothing back", func() { out(1, 2) }, 3, errNoRoom},
		{"the last is", func() { out(1, 1) }, 1, nil},
		{"the next fetch of a partition is not given back with the one before", func() { out(1, 1) }, 3, errNoRoom},
		{"nor before it is out itself", func() { in(1, 1) }, 3, errNoRoom},
		{"then it is", func() { out(1, 1) }, 3, nil},
	} {
		step.before()
		if err := read(step.partition); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.reason, err, step.want)
		}
	}
	if _, err := u.Decompress(packed(t, &kgo.Record{Value: make([]byte, maxUnpacked+1)}), kgo.CodecGzip); !errors.Is(err, kgo.ErrMaxDecompress) {
		t.Errorf("a batch larger than everything: %v", err)
	}
	if n := u.all(time.Now()); n < 60<<20 || n > maxUnpacked {
		t.Errorf("got %d bytes in use, want those of two fetches", n)
	}
	if n := u.all(time.Now().Add(2 * staleAfter)); n > 31<<20 {
		t.Errorf("got %d bytes in use long after a fetch without records", n)
	}
}

// Many records that are small when packed and large when not all come, and the memory of
// the process stays bounded meanwhile.
func TestHostileRecordsTakeBoundedMemory(t *testing.T) {
	const batches, records, size = 9, 600, 60_000 // 9 times 36 MB; packed, all fit in one fetch
	c := newCluster(t, 4, []string{"push"})
	raw := rawBatch(t, true, records, func(int) *kgo.Record {
		return &kgo.Record{Key: []byte(strings.Repeat("k", 1000)), Value: []byte(strings.Repeat(" ", size))}
	})
	for i := range batches {
		c.produceRaw("push", int32(i%4), raw)
	}
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	options := SourceOptions{Topics: mainTopic("push"), BatchBytes: 4 << 20, OpenBatches: 2, OpenBytes: 16 << 20, Linger: time.Millisecond}
	s := c.source(options)
	var most uint64
	for got, n := 0, 0; got < batches*records; n++ {
		b := nextItems(t, s, 1)[0]
		if n%4 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
		}
		got += len(b.Items)
		done(b)
		if err := s.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// The open records, one poll more, the client's unpacked records, and its buffer for
	// unpacking.
	if limit := uint64(options.OpenBytes + 4*maxUnpacked); most > limit {
		t.Errorf("got %d MiB, want at most %d", most>>20, limit>>20)
	}
}
