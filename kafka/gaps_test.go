package kafka

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// emptyBatch returns the header of a batch as compaction leaves it.
func emptyBatch(first int64, lastDelta int32, records int32, attributes uint16) []byte {
	b := make([]byte, batchHeader)
	binary.BigEndian.PutUint64(b, uint64(first))
	binary.BigEndian.PutUint32(b[batchLengthAt:], batchHeader-batchLengthFrom)
	binary.BigEndian.PutUint16(b[batchAttributesAt:], attributes)
	binary.BigEndian.PutUint32(b[batchLastDeltaAt:], uint32(lastDelta))
	binary.BigEndian.PutUint32(b[batchRecordsAt:], uint32(records))
	return b
}

func TestBehindEmpty(t *testing.T) {
	join := func(bs ...[]byte) (all []byte) {
		for _, b := range bs {
			all = append(all, b...)
		}
		return all
	}
	for _, tt := range []struct {
		why  string
		raw  []byte
		want int64
	}{
		{"nothing there yet", nil, 10},
		{"records, which the client reads itself", emptyBatch(10, 4, 5, 0), 10},
		{"compacted away", emptyBatch(10, 4, 0, 0), 15},
		{"two of them", join(emptyBatch(10, 4, 0, 0), emptyBatch(15, 0, 0, 0)), 16},
		{"a control batch is no record for a reader", emptyBatch(10, 0, 1, batchIsControl), 11},
		{"records after an empty one", join(emptyBatch(10, 4, 0, 0), emptyBatch(15, 1, 2, 0)), 15},
		{"the broker sends the batch from its start, before the position", emptyBatch(6, 9, 0, 0), 16},
		{"an empty batch that ends before the position", emptyBatch(2, 3, 0, 0), 10},
		{"cut in the middle of a header", emptyBatch(10, 4, 0, 0)[:40], 10},
		{"a length that cannot be", func() []byte {
			b := emptyBatch(10, 4, 0, 0)
			binary.BigEndian.PutUint32(b[batchLengthAt:], 3)
			return b
		}(), 10},
	} {
		if got := behindEmpty(tt.raw, 10); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.why, got, tt.want)
		}
	}
}

// If the broker does not tell whether records follow, reading ends with an error and
// not as if there were none.
func TestAGapThatIsRefusedIsAnError(t *testing.T) {
	t.Parallel() // the client asks for metadata every 5 s at most
	c := newCluster(t, 1, []string{"push.dlq"})
	c.produce("push.dlq", 0, 0, 3)
	f, err := NewFollower(c.options, "push.dlq", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	refuse := func() {
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "push.dlq", Err: kerr.TopicAuthorizationFailed, Count: -1})
	}
	// The extent ends after the last record, as if compaction had removed the rest.
	err = f.ReadExtent(t.Context(), Extent{0: {0, 5}}, func(r Record) error {
		if r.Offset == 2 {
			refuse()
		}
		return nil
	})
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "gaps") {
		t.Errorf("reading: got %v, want the refusal", err)
	}
	if _, err := f.Gaps(t.Context(), map[int32]int64{0: 3}); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("looking for gaps: got %v, want the refusal", err)
	}
}
