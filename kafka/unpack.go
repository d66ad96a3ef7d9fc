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
	// maxUnpacked is the most memory that unpacked records may take, of all brokers,
	// until the client hands them out. So it is also the size of the largest batch.
	maxUnpacked = 64 << 20
	// maxFetch is how many bytes one fetch asks a broker for. Records that are not
	// compressed can take 25 times as much memory: the smallest record has 7 bytes.
	maxFetch = 1 << 20
	// fetchWait is how long a broker holds a fetch for which it has no records. A partition
	// that had no room when the fetch was sent, and has some now, waits for the next one.
	fetchWait = 250 * time.Millisecond
	// recordBytes is the memory that the client uses for a record in addition to its
	// content.
	recordBytes = 168
)

// errNoRoom leaves the batch in Kafka, for a later fetch.
var errNoRoom = errors.New("no room to unpack a batch for now")

// unpacking unpacks what one client fetches. It bounds the memory of unpacked records,
// each counted until the client has handed out, or dropped, the last record of its
// fetch.
//
// It is the client's decompressor and one of its hooks.
type unpacking struct {
	packed kgo.Decompressor // bounded to maxUnpacked a batch
	single sync.Mutex       // held while a batch is unpacked, because that takes memory itself

	mu     sync.Mutex
	loose  []unpacked // batches whose partition is not known yet; guarded by mu, as shares
	shares map[push.Partition]*share
	// tooLarge are the partitions of which the client fetches no more, because a batch is too
	// large, and since when; guarded by mu. See untold.
	tooLarge map[push.Partition]time.Time
}

// unpacked is a batch that the client has not reported to a hook yet.
type unpacked struct {
	size, cost int
	at         time.Time
	tooLarge   bool // it was not unpacked; size is that of the packed batch
}

// share is the memory that the fetch of one partition takes.
type share struct {
	fresh    int       // bytes of batches whose records the client does not have yet
	freshAt  time.Time // when the last of these was unpacked
	held     int       // bytes of batches whose records it has
	buffered int       // number of records that it has
}

// staleAfter is the longest time that the client takes from unpacking a batch to
// buffering its records. It has dropped older batches.
const staleAfter = time.Minute

// newUnpacking makes the unpacking of one client.
func newUnpacking() (*unpacking, error) {
	// A client that never connects lends its bounded decompressor.
	c, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	defer c.Close()
	packed, ok := c.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return nil, errors.New("the client has no decompressor")
	}
	return &unpacking{packed: packed, shares: make(map[push.Partition]*share), tooLarge: make(map[push.Partition]time.Time)}, nil
}

// Decompress implements kgo.Decompressor.
func (u *unpacking) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	u.single.Lock()
	defer u.single.Unlock()
	out, err := u.packed.Decompress(src, codec)
	cost := costOf(out)
	if err == nil && cost > maxUnpacked {
		err = kgo.ErrMaxDecompress
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if errors.Is(err, kgo.ErrMaxDecompress) {
		u.loose = append(u.loose, unpacked{size: len(src), at: now, tooLarge: true})
	}
	if err != nil {
		return nil, err
	}
	if u.all(now)+cost > maxUnpacked {
		return nil, errNoRoom
	}
	u.loose = append(u.loose, unpacked{size: len(out), cost: cost, at: now})
	return out, nil
}

// all returns the memory of everything that is unpacked. The caller holds mu.
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

// of returns a partition's share. The caller holds mu.
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
	// Of a batch that was not unpacked the client says no records, and its packed size twice.
	i := -1
	if m.NumRecords == 0 {
		i = u.looseOf(m.UncompressedBytes, true)
	}
	if i < 0 {
		i = u.looseOf(m.UncompressedBytes, false)
	}
	if i < 0 {
		return
	}
	if l := u.loose[i]; l.tooLarge {
		u.tooLarge[push.Partition{Topic: topic, ID: partition}] = l.at
	} else {
		s := u.of(topic, partition)
		s.fresh, s.freshAt = s.fresh+l.cost, l.at
	}
	u.loose = slices.Delete(u.loose, i, i+1)
}

// looseOf returns the index of a loose batch of a size that was too large, or was not; -1 = there
// is none. The caller holds mu.
func (u *unpacking) looseOf(size int, tooLarge bool) int {
	return slices.IndexFunc(u.loose, func(l unpacked) bool { return l.size == size && l.tooLarge == tooLarge })
}

// OnFetchRecordBuffered implements kgo.HookFetchRecordBuffered.
func (u *unpacking) OnFetchRecordBuffered(r *kgo.Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.of(r.Topic, r.Partition)
	s.buffered++
	s.held, s.fresh = s.held+s.fresh, 0
	// A batch behind records of the same fetch is no error yet: it is fetched again, as the first.
	delete(u.tooLarge, push.Partition{Topic: r.Topic, ID: r.Partition})
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

// costOf returns the memory that the client takes for these records: their bytes, and
// its own data for each record and header. It stops at data that cannot be read, as the
// client does.
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

// headersOfRecord returns how many headers a record claims to have, at most as many as
// fit into it.
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
