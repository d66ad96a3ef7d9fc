package fanout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
)

// Messages of an audience come newest first, in pages of any size and over days, each once,
// and none of another audience.
func TestMessagesOfAnAudience(t *testing.T) {
	for name, notes := range map[string]both{"memory": NewMemory(), "cassandra": NewTableNotes(keyspacetest.Open(t))} {
		t.Run(name, func(t *testing.T) { testMessages(t, notes) })
	}
}

func testMessages(t *testing.T, notes both) {
	ctx := t.Context()
	begin := func(n int, at time.Time, change ...func(*Job)) uuid.UUID {
		t.Helper()
		j := aJob(t, append(change, func(j *Job) {
			j.Message = uuid.MustParse(fmt.Sprintf("0199f3c2-7d1a-7c3e-9b1f-%012x", n))
			j.Accepted, j.Expires = at, at.Add(time.Hour)
		})...)
		for range 2 { // a repeat is no second one
			if _, err := notes.Begin(ctx, j); err != nil {
				t.Fatal(err)
			}
		}
		return j.Message
	}
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	var want []uuid.UUID // from the oldest
	for i, after := range []time.Duration{-72 * time.Hour, -25 * time.Hour, -time.Millisecond, 0, time.Second, time.Second, 23 * time.Hour} {
		want = append(want, begin(i, midnight.Add(after)))
	}
	for i, other := range []func(*Job){
		func(j *Job) { j.To.Name = "offers" },
		func(j *Job) {
			j.App, j.Rest = "bank", []byte(`"sender_id":"shop","app":"bank","type":"news","title":"Snow"}`)
		},
		func(j *Job) { j.To = To{Kind: OfApp, Name: "shop", Parts: 4} },
		func(j *Job) { j.To = To{Kind: OfSegment, Name: "news/x", Parts: 4} },
	} {
		begin(100+i, midnight, other)
	}
	slices.Reverse(want)
	to, end := To{Kind: OfTopic, Name: "news"}, Place{At: midnight.Add(24 * time.Hour)}
	list := func(before Place, oldest time.Time, limit int) []Listed {
		t.Helper()
		got, err := notes.Messages(ctx, "shop", to, before, oldest, limit)
		if err != nil || len(got) > limit {
			t.Fatalf("%d of %d, %v", len(got), limit, err)
		}
		return got
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []uuid.UUID
		for before := end; ; {
			page := list(before, midnight.Add(-72*time.Hour), limit)
			for _, l := range page {
				if l.Sender != "shop" || l.Expires.Sub(l.Accepted) != time.Hour {
					t.Errorf("%+v", l)
				}
				got = append(got, l.Message)
			}
			if len(page) < limit {
				break
			}
			before = page[limit-1].Place()
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", limit, got, want)
		}
	}
	if got := list(end, midnight.Add(-71*time.Hour), 100); len(got) != len(want)-1 {
		t.Errorf("of 71 hours: %+v", got)
	}
	if got := list(end, midnight, 100); len(got) != 4 {
		t.Errorf("of a day: %+v", got)
	}
	if got := list(Place{At: midnight}, midnight.Add(-time.Hour), 100); len(got) != 1 {
		t.Errorf("of the day before: %+v", got)
	}
}

// oneJob is a table with one job, and those who wrote down that it has begun.
type oneJob struct {
	job    []byte
	away   error // of the list
	listed [][]any
}

func (o *oneJob) Exec(_ context.Context, statement string, values ...any) error {
	switch {
	case strings.Contains(statement, "fanout_messages"):
		if o.away == nil {
			o.listed = append(o.listed, values)
		}
		return o.away
	case o.job == nil:
		o.job = values[1].([]byte)
	}
	return nil
}

func (o *oneJob) Query(_ context.Context, _ string, _, dest []any, row func()) error {
	if o.job != nil {
		*dest[0].(*[]byte) = o.job
		row()
	}
	return nil
}

// Who stops between a job's note and its place in the list does the record again, and so
// does another process with a repeat that was accepted later: the place is that of the first.
func TestListedAfterAStop(t *testing.T) {
	away := errors.New("no hosts available")
	tables := &oneJob{away: away}
	notes := NewTableNotes(tables)
	if _, err := notes.Begin(t.Context(), aJob(t)); !errors.Is(err, away) || tables.job == nil {
		t.Fatalf("%v, want that it is not listed", err)
	}
	tables.away = nil
	later := accepted.Add(48 * time.Hour)
	if _, err := notes.Begin(t.Context(), aJob(t, func(j *Job) { j.Accepted, j.Expires = later, later.Add(time.Hour) })); err != nil {
		t.Fatal(err)
	}
	if len(tables.listed) != 1 {
		t.Fatalf("listed %v", tables.listed)
	}
	at := tables.listed[0]
	if at[0] != "shop/news" || at[1] != dayOf(accepted) || !at[2].(time.Time).Equal(accepted) || !at[5].(time.Time).Equal(accepted.Add(24*time.Hour)) {
		t.Errorf("listed %v, want it as it was accepted first", at)
	}
}

// A place between two has of the newer one no more than tells them apart.
func TestBefore(t *testing.T) {
	newer := Listed{Message: uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"), Accepted: time.UnixMilli(0x0102030405).UTC()}
	of := func(id string, ms int64) Listed {
		return Listed{Message: uuid.MustParse(id), Accepted: time.UnixMilli(ms).UTC()}
	}
	for _, tt := range []struct {
		older Listed
		want  Place
	}{
		{of("ffffffff-ffff-ffff-ffff-ffffffffffff", 0x0102030305), Place{At: time.UnixMilli(0x0102030400).UTC()}},
		{of("ffffffff-ffff-ffff-ffff-ffffffffffff", 0x0102030404), Place{At: newer.Accepted}},
		{of("0099f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", 0x0102030405), Place{newer.Accepted, uuid.UUID{1}}},
		{of("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f20", 0x0102030405), newer.Place()},
	} {
		if got := Before(&tt.older, &newer); got != tt.want || got.older(newer.Place()) > 0 || tt.older.Place().older(got) >= 0 {
			t.Errorf("between %+v and %+v: %+v, want %+v", tt.older, newer, got, tt.want)
		}
	}
}
