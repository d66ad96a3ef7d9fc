package users

import "context"

// Span is what a partition of push.users holds.
type Span struct {
	Start int64 // the first offset that can be read
	End   int64 // the next offset to be written, as far as readers may see
}

// Fetched is a run of records of one partition, in offset order.
type Fetched struct {
	Partition int32
	Records   []FetchedRecord
	// Next is the offset after the last one that this run accounts for, also
	// when the offsets before it hold no record any more (compaction) or only a
	// control record. It is more than every offset in Records. A run without
	// records may be handed out just to say Next: at the end of a partition
	// whose last offsets hold no record, it must be.
	Next int64
}

// FetchedRecord is a Record at its offset.
type FetchedRecord struct {
	Record
	Offset int64
}

// Follower reads all partitions of push.users, without a consumer group: what
// has been applied is kept in Redis. It has one user at a time.
type Follower interface {
	// Spans returns the span of every partition; the index is its number.
	Spans(ctx context.Context) ([]Span, error)
	// Seek sets from which offset on Poll reads each partition; the index is
	// its number. An offset before the first goes to the first. Nothing polled
	// before is handed out afterwards. It is called before the first Poll.
	Seek(ctx context.Context, offsets []int64) error
	// Poll waits for records, of any of the partitions, and returns those that
	// are there, at most some 10,000. When ctx ends first it returns ctx's
	// error, and no record: what it has read, it hands out. The records are the
	// caller's.
	Poll(ctx context.Context) ([]Fetched, error)
}

// FeedbackSource reads push.feedback in a consumer group.
type FeedbackSource interface {
	// Poll waits for records and returns their values, at most some 10,000.
	// Each is handed out again, to this or another reader, until it was
	// committed. When ctx ends first it returns ctx's error.
	Poll(ctx context.Context) ([][]byte, error)
	// Commit commits everything that Poll has handed out.
	Commit(ctx context.Context) error
}
