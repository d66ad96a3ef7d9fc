package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

const (
	// maxUnpacked is how much memory what a client has unpacked and not handed out
	// may take, over all brokers, and so how large a batch may be.
	maxUnpacked = 64 << 20
	// maxFetch is what one broker is asked for at a time. What is not packed at all
	// can take 25 times that: the smallest record has 7 bytes.
	maxFetch = 1 << 20
	// recordBytes is what the client takes for a record beside its content.
	recordBytes = 168
)

// errNoRoom leaves a batch for a later fetch.
var errNoRoom = errors.New("no room to unpack a batch for now")

// unpacking unpacks what one client fetches, and bounds what that takes until the
// client has handed out the last record of it, or thrown it away.
//
// It is the client's decompressor and one of its hooks.
type unpacking struct {
	packed kgo.Decompressor // bounded to maxUnpacked a batch
	single sync.Mutex       // one at a time: unpacking itself takes memory

	mu     sync.Mutex
	loose  []unpacked // not known yet of which partition
	shares map[push.Partition]*share
}

// unpacked is a batch that the client has not told of yet.
type unpacked struct {
	size, cost int
	at         time.Time
}

// share is what one partition's fetch takes.
type share struct {
	fresh    int       // of batches whose records the client does not have yet
	freshAt  time.Time // when the last of them came
	held     int       // of those whose records it has
	buffered int       // records that it has
}

// staleAfter is how long the client takes at most from unpacking a batch to
// having its records. What is older, it has no records of.
const staleAfter = time.Minute

// newUnpacking makes the unpacking of one client.
func newUnpacking() (*unpacking, error) {
	// A client that never connects has the bounded decompressor.
	c, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	defer c.Close()
	packed, ok := c.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return nil, errors.New("the client has no decompressor")
	}
	return &unpacking{packed: packed, shares: make(map[push.Partition]*share)}, nil
}

// Decompress implements kgo.Decompressor.
func (u *unpacking) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	u.single.Lock()
	defer u.single.Unlock()
	out, err := u.packed.Decompress(src, codec)
	if err != nil {
		return nil, err
	}
	cost := costOf(out)
	if cost > maxUnpacked {
		return nil, kgo.ErrMaxDecompress
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if u.all(now)+cost > maxUnpacked {
		return nil, errNoRoom
	}
	u.loose = append(u.loose, unpacked{len(out), cost, now})
	return out, nil
}

// all is what everything takes. The caller holds mu.
func (u *unpacking) all(now time.Time) (n int) {
	u.loose = slices.DeleteFunc(u.loose, func(l unpacked) bool { return now.Sub(l.at) > staleAfter })
	for _, l := range u.loose {
		n += l.cost
	}
	for _, s := range u.shares {
		if now.Sub(s.freshAt) > staleAfter {
			s.fresh = 0
		}
		n += s.fresh + s.held
	}
	return n
}

// of is a partition's share. The caller holds mu.
func (u *unpacking) of(topic string, partition int32) *share {
	p := push.Partition{Topic: topic, ID: partition}
	s := u.shares[p]
	if s == nil {
		s = new(share)
		u.shares[p] = s
	}
	return s
}

// OnFetchBatchRead implements kgo.HookFetchBatchRead.
func (u *unpacking) OnFetchBatchRead(_ kgo.BrokerMetadata, topic string, partition int32, m kgo.FetchBatchMetrics) {
	if m.CompressionType == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.IndexFunc(u.loose, func(l unpacked) bool { return l.size == m.UncompressedBytes }); i >= 0 {
		s := u.of(topic, partition)
		s.fresh, s.freshAt = s.fresh+u.loose[i].cost, u.loose[i].at
		u.loose = slices.Delete(u.loose, i, i+1)
	}
}

// OnFetchRecordBuffered implements kgo.HookFetchRecordBuffered.
func (u *unpacking) OnFetchRecordBuffered(r *kgo.Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.of(r.Topic, r.Partition)
	s.buffered++
	s.held, s.fresh = s.held+s.fresh, 0
}

// OnFetchRecordUnbuffered implements kgo.HookFetchRecordUnbuffered.
func (u *unpacking) OnFetchRecordUnbuffered(r *kgo.Record, _ bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.of(r.Topic, r.Partition)
	if s.buffered--; s.buffered <= 0 {
		s.buffered, s.held = 0, 0
	}
}

// costOf is the memory that the client takes for these records: their bytes, and
// what it makes for each record and header. What cannot be read ends it: so it
// does for the client.
func costOf(records []byte) int {
	cost := len(records)
	for len(records) > 0 {
		length, n := binary.Varint(records)
		if n <= 0 || length < 0 || int64(len(records)-n) < length {
			break
		}
		cost += recordBytes + headerBytes*headersOfRecord(records[n:n+int(length)])
		records = records[n+int(length):]
	}
	return cost
}

// headersOfRecord is how many headers a record has, at most as many as it has
// room for.
func headersOfRecord(r []byte) int {
	if len(r) == 0 {
		return 0
	}
	r = r[1:] // attributes
	next := func() int64 {
		v, n := binary.Varint(r)
		if n <= 0 {
			r = nil
			return 0
		}
		r = r[n:]
		return v
	}
	skip := func(size int64) { r = r[min(max(size, 0), int64(len(r))):] }
	next() // timestamp
	next() // offset
	skip(next())
	skip(next())
	return int(min(max(next(), 0), int64(len(r)/2)))
}
