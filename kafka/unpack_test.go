package kafka

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func packed(t *testing.T, records ...*kgo.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zipper(&b)
	for i, r := range records {
		_, _ = z.Write(wireRecord(i, r)) // a buffer takes everything
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
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

func TestWhatRecordsCostTheClient(t *testing.T) {
	small := make([]*kgo.Record, 500_000)
	for i := range small {
		small[i] = &kgo.Record{}
	}
	u, err := newUnpacking()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Decompress(packed(t, small...), kgo.CodecGzip); !errors.Is(err, kgo.ErrMaxDecompress) {
		t.Errorf("unpacking half a million empty records: got %v, want a refusal", err)
	}
	for _, tt := range []struct {
		reason string
		record *kgo.Record
		extra  int
	}{
		{"empty", &kgo.Record{}, recordBytes},
		{"key and value", &kgo.Record{Key: []byte("key"), Value: make([]byte, 300)}, recordBytes},
		{"headers", &kgo.Record{Key: []byte("k"), Headers: []kgo.RecordHeader{{}, {Key: "a", Value: []byte("b")}, {}}}, recordBytes + 3*headerBytes},
	} {
		raw := append(wireRecord(0, tt.record), wireRecord(1, tt.record)...)
		if got, want := costOf(raw), len(raw)+2*tt.extra; got != want {
			t.Errorf("%s: got cost %d for two, want %d", tt.reason, got, want)
		}
		for cut := range raw { // invalid data must not panic
			_ = costOf(raw[cut:])
			_ = costOf(raw[:cut])
		}
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
