package kafka

import (
	"encoding/binary"
	"testing"
)

// emptyBatch is the header of a batch as compaction leaves it.
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
		{"records: the client reads them itself", emptyBatch(10, 4, 5, 0), 10},
		{"compacted away", emptyBatch(10, 4, 0, 0), 15},
		{"two of them", join(emptyBatch(10, 4, 0, 0), emptyBatch(15, 0, 0, 0)), 16},
		{"a control batch is no record for a reader", emptyBatch(10, 0, 1, batchIsControl), 11},
		{"records behind an empty one", join(emptyBatch(10, 4, 0, 0), emptyBatch(15, 1, 2, 0)), 15},
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
			t.Errorf("%s: %d, want %d", tt.why, got, tt.want)
		}
	}
}
