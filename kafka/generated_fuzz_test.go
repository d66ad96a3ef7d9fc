package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/records"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// choices is a source of random numbers, the first of which a fuzzer chooses.
type choices struct {
	data []byte
	rest rand.Source
}

func newChoices(data []byte) *choices {
	h := fnv.New64a()
	h.Write(data)
	return &choices{data, rand.NewPCG(h.Sum64(), 1)}
}

func (c *choices) Uint64() uint64 {
	if len(c.data) < 8 {
		return c.rest.Uint64()
	}
	n := binary.LittleEndian.Uint64(c.data)
	c.data = c.data[8:]
	return n
}

// FuzzGeneratedRecords compares the items that the source makes of records with what
// their generator says the contract demands.
func FuzzGeneratedRecords(f *testing.F) {
	for seed := range byte(8) {
		f.Add([]byte{seed})
	}
	f.Fuzz(func(t *testing.T, data []byte) { readsAsDemanded(t, newChoices(data), 20) })
}

// TestGeneratedRecords reads thousands of records in every test run, so that every kind
// is among them.
func TestGeneratedRecords(t *testing.T) {
	t.Parallel()
	kinds := readsAsDemanded(t, rand.NewPCG(3, 14), 3000)
	if len(kinds) < 100 {
		t.Errorf("got only %d kinds of records", len(kinds))
	}
}

// readsAsDemanded checks n generated records, and returns their kinds.
func readsAsDemanded(t *testing.T, source rand.Source, n int) map[string]int {
	const age = 24 * time.Hour
	g, err := records.New(records.Options{App: "shop", Users: []records.User{{ID: "u1"}, {ID: "u2"}, {ID: "u3"}}, GreatestAge: age, Wire: true}, source)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	a := part(options(func(o *SourceOptions) { o.Topics = mainTopic("push"); o.BatchRecords, o.OpenBatches = n, 2 }), 0)
	var made []records.Record
	draw := rand.New(source)
	var offsets []int64
	for range n {
		r := g.Next(now)
		made, offsets = append(made, r), append(offsets, behind(offsets, draw))
		a.take([]*kgo.Record{polled(&r, offsets[len(offsets)-1])}, now)
	}
	if a.stopped != nil || len(a.waiting) != n {
		t.Fatalf("got %d of %d records, stopped by %v", len(a.waiting), n, a.stopped)
	}
	b := &pipeline.Batch{Partition: a.partition, Items: a.topic.items(a.waiting), Tracker: a.tracker}
	undated := make([]bool, n) // before the tracker has its own reasons
	for i := range b.Items {
		undated[i] = b.Items[i].Confirm
	}
	if err := decoder(decode.Message).Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if taken := a.tracker.Admit(b); taken != n {
		t.Fatalf("got %d of %d records admitted", taken, n)
	}
	kinds := map[string]int{}
	for i := range made {
		kinds[made[i].Kind]++
		if got := b.Items[i].Offset; got != offsets[i] {
			t.Fatalf("record %d has offset %d, want %d", i, got, offsets[i])
		}
		err := differs(&made[i], &b.Items[i], now, age)
		if counts := made[i].Want.Age == records.AsWritten; err == nil && b.Items[i].Reason != push.TooLarge && undated[i] == counts {
			err = fmt.Errorf("its time counts as it is written %v, and it is confirmed for that %v", counts, undated[i])
		}
		if err != nil {
			t.Errorf("record %d, %s: %v", i, made[i].Kind, err)
		}
	}
	commitsPastHoles(t, a.tracker, b.Items, offsets, draw.IntN(n))
	return kinds
}

// behind returns the offset of a record that comes after others. Sometimes records
// are missing in between, as after compaction or where the mark of a transaction is.
func behind(offsets []int64, draw *rand.Rand) int64 {
	next := int64(0)
	if len(offsets) > 0 {
		next = offsets[len(offsets)-1] + 1
	}
	switch n := draw.IntN(40); {
	case n == 0:
		return next + draw.Int64N(1<<40)
	case n < 10:
		return next + 1 + draw.Int64N(3)
	}
	return next
}

// commitsPastHoles ends all items but one, and that one last: the offset to commit
// follows the last record before it, and in the end the last one of all.
func commitsPastHoles(t *testing.T, tracker *pipeline.Tracker, items []pipeline.Item, offsets []int64, last int) {
	for i := range items {
		if i != last {
			tracker.Done([]*pipeline.Item{&items[i]})
		}
	}
	next, ok := tracker.Watermark()
	if ok != (last > 0) || ok && next != offsets[last-1]+1 {
		t.Errorf("record %d of %v is open: got %d, %v to commit", last, offsets, next, ok)
	}
	tracker.Done([]*pipeline.Item{&items[last]})
	if next, ok := tracker.Watermark(); !ok || next != offsets[len(offsets)-1]+1 {
		t.Errorf("all of %v is done: got %d, %v to commit", offsets, next, ok)
	}
}

// polled returns a record as the client hands it out: it converts the time to
// nanoseconds, which may overflow.
func polled(r *records.Record, offset int64) *kgo.Record {
	k := &kgo.Record{Topic: "push", Offset: offset, Timestamp: time.Unix(0, r.Millis*1e6), Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return k
}

// differs returns how an item differs from what its record demands; empty = it does not.
func differs(r *records.Record, it *pipeline.Item, now time.Time, age time.Duration) error {
	want := &r.Want
	verdict, reason := push.Undecided, want.Reason
	switch {
	case want.Copy:
		verdict, reason = push.Duplicate, ""
	case want.Outcome == records.DeadLettered && (!want.Decoded || reason == string(push.IDReused)):
		verdict = push.Dead
	default:
		reason = ""
	}
	id := want.ID
	if id == "" {
		id = records.PlaceID(it.Partition.Topic, it.Partition.ID, it.Offset)
	}
	switch {
	case it.Verdict != verdict || string(it.Reason) != reason:
		return fmt.Errorf("it is %v (%s:%s), want %v (%s:%s)", it.Verdict, it.Reason, it.Detail, verdict, reason, want.Detail)
	case verdict == push.Dead && want.Detail != "*" && it.Detail != want.Detail:
		return fmt.Errorf("it is dead because of %s:%s, want %s:%s", it.Reason, it.Detail, want.Reason, want.Detail)
	case it.RowID() != id:
		return fmt.Errorf("its rows stand under %q, want %q", it.RowID(), id)
	case it.Attempt != 0 || it.Hops != 0 || it.Redrive != 0 || it.Devices != nil || !it.NotBefore.IsZero() || it.HandedAs != 0:
		return fmt.Errorf("a producer's headers count: attempt %d, %d hops, devices %q", it.Attempt, it.Hops, it.Devices)
	}
	if size := headersSize(traceOf(it)); size > maxOthers+maxTraceparent {
		return fmt.Errorf("%d bytes of headers are kept", size)
	}
	return timesDiffer(r, it, now, age)
}

func traceOf(it *pipeline.Item) (hs []kgo.RecordHeader) {
	for _, h := range it.Trace {
		hs = append(hs, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return hs
}

// timesDiffer compares timestamp and expiry.
func timesDiffer(r *records.Record, it *pipeline.Item, now time.Time, age time.Duration) error {
	want := &r.Want
	seen := map[records.Age]time.Time{records.AsWritten: time.UnixMilli(r.Millis), records.Now: now, records.Epoch: time.UnixMilli(0),
		records.Ahead: now.Add(time.Minute)}[want.Age]
	if !it.FirstSeen.Time().Equal(seen) {
		return fmt.Errorf("its age runs from %v, want %v", it.FirstSeen, seen)
	}
	if it.Verdict != push.Undecided {
		return nil
	}
	if !want.Expires.IsZero() && !it.ExpiresAt.Equal(want.Expires) {
		return fmt.Errorf("it expires at %v, want %v", it.ExpiresAt, want.Expires)
	}
	tooOld, past := !now.Before(it.FirstSeen.Time().Add(age)), !it.ExpiresAt.IsZero() && !now.Before(it.ExpiresAt)
	if tooOld != (want.Reason == string(push.TooOld)) || past != (want.Reason == string(push.PastExpiry)) {
		return fmt.Errorf("it is too old %v and past its expiry %v, want %s (%s)", tooOld, past, want.Outcome, want.Reason)
	}
	return nil
}
