// Package statustest is what every status store must do, as a test suite: run
// against the memory store and against real Cassandra, so that what is tested
// on the one holds for the other.
package statustest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Store is a status store: what the pipeline writes and what a confirm read
// asks.
type Store interface {
	pipeline.Status
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// Run runs the suite. All ids it uses are new ones, so the store may hold other
// rows.
func Run(t *testing.T, s Store) {
	for _, tt := range []struct {
		name string
		run  func(*testing.T, Store)
	}{
		{"what is written is read, every column", testEveryColumn},
		{"an id without rows has none", testUnknown},
		{"the same row twice is one row", testTwice},
		{"states of a device stand side by side", testInsertOnly},
		{"a skewed clock cannot bury DELIVERED", testSkew},
		{"answers are aligned with what was asked", testAligned},
		{"values at their limits", testLimits},
		{"the caller's memory is its own again", testMemory},
		{"writers and readers at once", testAtOnce},
		{"an ended context ends a call", testContext},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, s) })
	}
}

// at is a time as stores keep it: in milliseconds, UTC.
func at(seconds int) time.Time {
	return time.Date(2026, 11, 21, 7, 30, seconds, int(123*time.Millisecond), time.UTC)
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func write(t *testing.T, s Store, rows ...push.Row) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Write(ctx, rows); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s Store, ids ...string) [][]push.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := s.Read(ctx, ids)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(ids) {
		t.Fatalf("asked for %d ids, got %d answers", len(ids), len(got))
	}
	return got
}

func expect(t *testing.T, s Store, id string, want ...push.Row) {
	t.Helper()
	if got := read(t, s, id)[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("rows of %s:\n got %+v\nwant %+v", id, got, want)
	}
}

func testEveryColumn(t *testing.T, s Store) {
	for _, id := range []string{newID(), "order-" + newID()[:8], "kafka:" + newID()} {
		full := push.Row{ID: id, Device: "abcdefghijklmnop", Step: 3, State: push.StateDelivered, At: at(1),
			Platform: push.FCM, ProviderID: "projects/p/messages/0:1", Reason: "OK", UserHash: 1<<63 + 5, Place: 1<<63 + 7}
		bare := push.Row{ID: id, State: push.StateSuppressed, At: at(0), UserHash: 1<<63 + 5}
		later := bare
		later.Device = "q"
		write(t, s, full, later, bare)
		expect(t, s, id, bare, full, later) // what a row does not have is not what the row before has
	}
}

func testUnknown(t *testing.T, s Store) {
	for i, rows := range read(t, s, newID(), "never-"+newID()) {
		if rows != nil {
			t.Errorf("answer %d is %v, want nil", i, rows)
		}
	}
	if got := read(t, s); len(got) != 0 {
		t.Errorf("asked for nothing, got %v", got)
	}
	write(t, s)
}

func testTwice(t *testing.T, s Store) {
	r := push.Row{ID: newID(), Device: "d", State: push.StateFailed, At: at(0), Platform: push.APNS, Reason: "BadDeviceToken", UserHash: 7}
	write(t, s, r, r)
	write(t, s, r)
	expect(t, s, r.ID, r)
	// Another owner of the partition comes to the same end a little later.
	r.At, r.ProviderID = at(5), "apns-2"
	write(t, s, r)
	expect(t, s, r.ID, r)
}

func testInsertOnly(t *testing.T, s Store) {
	id := newID()
	row := func(device string, step int16, state push.State, second int) push.Row {
		return push.Row{ID: id, Device: device, Step: step, State: state, At: at(second)}
	}
	rows := []push.Row{
		row("", 0, push.StateHeld, 0),
		row("a", 0, push.StateSending, 1),
		row("a", 0, push.StateRetrying, 2),
		row("a", 1, push.StateDelivered, 3),
		row("a", 10, push.StateDelivered, 3),
		row("b", 0, push.StateDelivered, 2),
		row("b", 32767, push.StateUnknown, 2),
	}
	for i := range rows { // in an order that is not the stored one
		write(t, s, rows[(i*3+2)%len(rows)])
	}
	expect(t, s, id, rows...)
}

func testSkew(t *testing.T, s Store) {
	delivered := push.Row{ID: newID(), Device: "a", State: push.StateDelivered, At: at(0)}
	retrying := delivered
	retrying.State, retrying.At = push.StateRetrying, at(0).Add(48*time.Hour) // its clock is two days ahead
	write(t, s, delivered)
	write(t, s, retrying)
	expect(t, s, delivered.ID, retrying, delivered)
	h := push.History{Rows: read(t, s, delivered.ID)[0]}
	if got := h.Outcome(); got != push.OutcomeDelivered {
		t.Errorf("outcome %v, want DELIVERED", got)
	}
}

func testAligned(t *testing.T, s Store) {
	var ids []string
	var rows []push.Row
	for i := range 350 { // more than one query's worth, some of one bucket, some not
		id := newID()
		if i%50 == 0 {
			id = "text-" + id
		}
		ids = append(ids, id)
		for d := range i % 3 {
			rows = append(rows, push.Row{ID: id, Device: fmt.Sprint("d", d), State: push.StateDelivered, At: at(0), UserHash: uint64(i)})
		}
	}
	write(t, s, rows...)
	ids = append(ids, ids[4], ids[2], ids[0]) // the same id asked for twice
	for i, got := range read(t, s, ids...) {
		n := i
		switch i {
		case 350:
			n = 4
		case 351:
			n = 2
		case 352:
			n = 0
		}
		if len(got) != n%3 {
			t.Fatalf("answer %d has %d rows, want %d", i, len(got), n%3)
		}
		for _, r := range got {
			if r.ID != ids[i] || r.UserHash != uint64(n) {
				t.Fatalf("answer %d is of %s, user %d; want %s, user %d", i, r.ID, r.UserHash, ids[i], n)
			}
		}
	}
}

func testLimits(t *testing.T, s Store) {
	r := push.Row{ID: strings.Repeat("~", 52) + newID()[24:], Device: "d", State: push.StateRetrying, At: at(0), UserHash: 1<<64 - 1,
		Reason: strings.Repeat("r", 100_000), ProviderID: "\xff\xfe broken \xc3"}
	write(t, s, r)
	got := read(t, s, r.ID)[0]
	if len(got) != 1 {
		t.Fatalf("%d rows", len(got))
	}
	if n := len(got[0].Reason); n == 0 || n >= len(r.Reason) || strings.Trim(got[0].Reason, "r") != "" {
		t.Errorf("a reason of 100,000 bytes is kept as %d; want its beginning", n)
	}
	if got[0].ProviderID != " broken " {
		t.Errorf("a provider id that is not UTF-8 is kept as %q", got[0].ProviderID)
	}
	if got[0].UserHash != r.UserHash || got[0].ID != r.ID {
		t.Errorf("got %v", got[0])
	}
}

func testMemory(t *testing.T, s Store) {
	want := push.Row{ID: newID(), Device: "first", State: push.StateDelivered, At: at(0), ProviderID: "p", Reason: "told"}
	var record []byte // whose memory is used again, under the strings that were cut from it
	cut := func(s string) string {
		from := len(record)
		record = append(record, s...)
		return unsafe.String(&record[from], len(s))
	}
	record = make([]byte, 0, 1024)
	row := want
	row.ID, row.Device, row.ProviderID, row.Reason = cut(want.ID), cut(want.Device), cut(want.ProviderID), cut(want.Reason)
	rows := []push.Row{row}
	write(t, s, rows...)
	for i := range record {
		record[i] = '?'
	}
	rows[0] = push.Row{ID: "overwritten", Device: "second"}
	expect(t, s, want.ID, want)
	got := read(t, s, want.ID)[0]
	got[0].Device = "changed by a reader"
	expect(t, s, want.ID, want)
}

func testAtOnce(t *testing.T, s Store) {
	const writers, calls, perCall = 8, 20, 30
	ids := make([][]string, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range calls {
				rows := make([]push.Row, perCall)
				for i := range rows {
					rows[i] = push.Row{ID: newID(), Device: "d", State: push.StateDelivered, At: at(w), UserHash: uint64(w)}
					ids[w] = append(ids[w], rows[i].ID)
				}
				write(t, s, rows...)
				// What Write has returned for is there at once.
				for i, got := range read(t, s, rows[0].ID, rows[perCall-1].ID) {
					if len(got) != 1 || got[0].UserHash != uint64(w) {
						t.Errorf("row %d of a finished write: %v", i, got)
					}
				}
			}
		})
	}
	wg.Wait()
	for w := range ids {
		for i, got := range read(t, s, ids[w]...) {
			if len(got) != 1 {
				t.Fatalf("writer %d, row %d: %d rows", w, i, len(got))
			}
		}
	}
}

func testContext(t *testing.T, s Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Write(ctx, []push.Row{{ID: newID(), At: at(0)}}); err == nil {
		t.Error("Write with an ended context says that its rows are durable")
	}
	if _, err := s.Read(ctx, []string{newID()}); err == nil {
		t.Error("Read with an ended context answers")
	}
}
