package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/push"
)

// rot spoils one batch in every answer that has it, as long as it is on. It stands for a
// bit that flips on a disk or in transit: the in-process broker stores sound batches only.
type rot struct {
	mark   []byte // in the batch, and nowhere else
	at     int    // position of mark in the batch
	spoil  func(batch []byte)
	on     atomic.Bool
	spoilt atomic.Int64 // how often the batch was spoilt
}

func (r *rot) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &rottenConn{Conn: conn, rot: r}, nil
}

// rottenConn reads whole answers of a broker, and spoils the batch in them.
type rottenConn struct {
	net.Conn
	rot    *rot
	answer []byte // the part not read yet
}

func (c *rottenConn) Read(b []byte) (int, error) {
	if len(c.answer) == 0 {
		var size [4]byte
		if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
			return 0, err
		}
		c.answer = append(size[:], make([]byte, binary.BigEndian.Uint32(size[:]))...)
		if _, err := io.ReadFull(c.Conn, c.answer[4:]); err != nil {
			return 0, err
		}
		if i := bytes.Index(c.answer, c.rot.mark); i >= c.rot.at && c.rot.on.Load() {
			c.rot.spoil(c.answer[i-c.rot.at:])
			c.rot.spoilt.Add(1)
		}
	}
	n := copy(b, c.answer)
	c.answer = c.answer[n:]
	return n, nil
}

// rots are ways in which a single bit can spoil a batch.
var rots = []struct {
	reason string
	spoil  func(batch []byte)
	says   string
}{
	{"a bit of a record", func(b []byte) { b[70] ^= 4 }, "crc"},
	{"a bit of the checksum", func(b []byte) { b[17] ^= 1 }, "crc"},
	{"a bit of the format's version", func(b []byte) { b[16] ^= 64 }, "magic"},
}

// rotten returns a cluster whose partition 0 has sound records, then a batch of one
// record that rots, then 5 sound records.
func rotten(t *testing.T, sound int, spoil func([]byte)) (*cluster, *rot) {
	c := newCluster(t, 2, []string{"push"})
	if sound > 0 {
		c.produce("push", 0, 0, sound)
	}
	mark := []byte("here is the rot")
	batch := rawBatch(t, false, 1, func(int) *kgo.Record {
		r := record("push", 0, sound)
		r.Headers = []kgo.RecordHeader{{Key: "x", Value: mark}}
		return r
	})
	c.produceRaw("push", 0, batch)
	c.produce("push", 0, sound+1, 5)
	r := &rot{mark: mark, at: bytes.Index(batch, mark), spoil: spoil}
	r.on.Store(true)
	return c, r
}

// A batch that stays spoilt stops its partition right before it. The sound records
// before it come; it and those after it stay in Kafka, and are not fetched over and
// over. Other partitions go on. When the batch is sound again, nothing is missing.
func TestASpoiltBatchStopsItsPartitionRightBeforeIt(t *testing.T) {
	for _, tt := range rots {
		for _, sound := range []int{0, 25} {
			t.Run(fmt.Sprintf("%s behind %d", tt.reason, sound), func(t *testing.T) {
				c, r := rotten(t, sound, tt.spoil)
				sources := *c
				sources.options.Dial = r.dial
				var told troubles
				options := SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Health: told.health, Drain: mortal, refetching: time.Millisecond}
				s := sources.source(options)
				bad := push.Partition{Topic: "push"}
				take := func(s *Source, n int, from int64) {
					t.Helper()
					for _, b := range nextItems(t, s, n) {
						for _, it := range b.Items {
							if b.Partition == bad {
								if it.Offset != from {
									t.Fatalf("got offset %d, want %d", it.Offset, from)
								}
								from++
							}
						}
						done(b)
					}
				}
				take(s, sound, 0)
				var stopped *PartitionError
				eventually(t, "the partition is named as stopped", func() bool {
					stopped, _ = errors.AsType[*PartitionError](told.of(bad))
					return stopped != nil
				})
				if stopped.Partition != bad || stopped.Offset != int64(sound) || !strings.Contains(stopped.Error(), tt.says) {
					t.Errorf("got %q, want offset %d and %q in it", stopped, sound, tt.says)
				}
				asked := r.spoilt.Load()
				for i := range 10 {
					c.produce("push", 1, i, 1)
					if b := nextItems(t, s, 1)[0]; b.Partition.ID != 1 {
						t.Fatalf("got offset %d of partition %d", b.Items[0].Offset, b.Partition.ID)
					} else {
						done(b)
					}
				}
				// One fetch may have been in progress when it stopped.
				if more := r.spoilt.Load() - asked; more > 1 {
					t.Errorf("got %d more fetches after the partition stopped", more)
				}
				if err := s.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if at := c.committed("g", "push", 0); at > int64(sound) || sound > 0 && at != int64(sound) {
					t.Errorf("got commit %d, want %d", at, sound)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.on.Store(false)
				take(sources.source(options), 6, int64(sound))
			})
		}
	}
}

// A batch that was spoilt on the way is sound when it is fetched again: the
// partition goes on by itself, also where no broker told where its log starts.
func TestABatchThatIsSpoiltOnTheWayIsFetchedAgain(t *testing.T) {
	for _, tt := range rots {
		for _, sound := range []int{25, 0} {
			t.Run(fmt.Sprintf("%s behind %d", tt.reason, sound), func(t *testing.T) {
				c, r := rotten(t, sound, tt.spoil)
				if sound == 0 {
					c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "push", Err: kerr.UnknownServerError, Count: -1})
				}
				c.options.Dial = r.dial
				var told troubles
				s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond,
					refetching: time.Hour, // so that it is fetched again however slow the machine is
					Health: func(p push.Partition, err error) {
						told.health(p, err)
						r.on.Store(false) // told, because it came without sound records
					}})
				var at int64
				for _, b := range nextItems(t, s, sound+6) {
					for _, it := range b.Items {
						if it.Offset != at {
							t.Fatalf("got offset %d, want %d", it.Offset, at)
						}
						at++
					}
					done(b)
				}
				for _, err := range told.told() {
					if _, stopped := errors.AsType[*PartitionError](err); stopped {
						t.Errorf("the partition stopped: %v", err)
					}
				}
				if len(told.told()) == 0 {
					t.Error("the corrupt fetch was not reported")
				}
			})
		}
	}
}

// A partition stops when data has been spoilt for too long and not before, also
// where neither the group nor a broker told where it starts.
func TestHowLongSpoiltDataIsFetchedAgain(t *testing.T) {
	for _, committed := range []int64{-1, 5} {
		a := part(options(nil), 0)
		a.committed = committed
		for _, step := range []struct {
			after time.Duration
			again bool
		}{{0, true}, {passing - 1, true}, {passing, false}} {
			again := a.fetchFailed(errors.New("crc mismatch"), true, 0, start.Add(step.after))
			if again != step.again || (a.stopped == nil) != step.again {
				t.Errorf("committed %d, after %v: fetched again %v, stopped by %v; want it fetched again: %v", committed, step.after, again, a.stopped, step.again)
			}
		}
		if e := a.stopped; e == nil || e.Offset != max(committed, 0) {
			t.Errorf("committed %d: stopped by %v, want it stopped there", committed, e)
		}
	}
}

// Spoilt data is fetched again for the whole 5 s, also if reading failed for other
// reasons before.
func TestASpoiltFetchBehindOtherTroubleIsFetchedAgain(t *testing.T) {
	spoilt := errors.New("crc mismatch")
	for _, tt := range []struct {
		why    string
		before func(s *Source, a *assignment, began time.Time)
	}{
		{"its leader moved for 6 s", func(_ *Source, a *assignment, began time.Time) {
			for d := time.Duration(0); d < 6*time.Second; d += refetch {
				a.fetchFailed(kerr.NotLeaderForPartition, false, 0, began.Add(d))
			}
		}},
		{"its topic could not be read for a moment", func(s *Source, _ *assignment, began time.Time) {
			s.topicFailed("push", kerr.TopicAuthorizationFailed, began.Add(5*time.Second))
		}},
	} {
		s := newSource(*options(func(*SourceOptions) {}), slog.New(slog.DiscardHandler))
		s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
		a := s.parts[push.Partition{Topic: "push"}]
		a.begin(stand{committed: 5, unresolved: -1}, 0)
		began := time.Now()
		tt.before(s, a, began)
		if again := a.fetchFailed(spoilt, true, 0, began.Add(6*time.Second)); !again || a.stopped != nil {
			t.Errorf("%s: the first spoilt fetch is fetched again: %v, stopped for good: %v", tt.why, again, a.stopped)
		}
	}
}
