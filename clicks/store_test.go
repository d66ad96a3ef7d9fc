package clicks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var errAway = errors.New("no hosts available")

// fakeTables note statements, and have rows for those that count. It is used by one
// goroutine.
type fakeTables struct {
	said []string // statements with their values
	rows int      // of each partition, as far as the statement's limit
	err  error
}

func (f *fakeTables) Exec(_ context.Context, statement string, values ...any) error {
	f.said = append(f.said, fmt.Sprint(statement, values))
	return f.err
}

func (f *fakeTables) Query(ctx context.Context, statement string, values, dest []any, row func()) error {
	if err := f.Exec(ctx, statement, values...); err != nil {
		return err
	}
	if statement != selectReports {
		return nil
	}
	for range min(f.rows, values[3].(int)) {
		*dest[0].(*int8), *dest[1].(*string), *dest[3].(*time.Time) = int8(Clicked), "news", noon
		row()
	}
	return nil
}

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// noonID is a UUIDv7 of that time.
const noonID = "01a217ba-1200-7c3e-9b1f-2a6c5d4e3f21"

func storeAtNoon(f *fakeTables, kept time.Duration) *Store {
	return New(Options{Tables: f, Kept: kept, Now: func() time.Time { return noon }})
}

// A row lives from the time of the notification on, however late it is reported, and never
// longer than tables may have it.
func TestHowLongARowLives(t *testing.T) {
	for _, tt := range []struct {
		kept time.Duration
		ago  time.Duration
		want time.Duration
	}{
		{0, 0, 90 * 24 * time.Hour}, {0, 30 * 24 * time.Hour, 60 * 24 * time.Hour}, {time.Hour, 0, LeastKept}, {10 * MostKept, 0, MostKept},
		{LeastKept, 48 * time.Hour, time.Hour}, {LeastKept, -48 * time.Hour, 72 * time.Hour}, {MostKept, -48 * time.Hour, MostKept},
	} {
		f := &fakeTables{}
		if err := storeAtNoon(f, tt.kept).Note(t.Context(), &Report{Sent: noon.Add(-tt.ago), At: noon}); err != nil {
			t.Fatal(err)
		}
		if words := strings.Fields(f.said[0]); words[len(words)-2] != fmt.Sprint(int(tt.want/time.Second)) {
			t.Errorf("%+v: %s", tt, f.said[0])
		}
	}
}

// A partition depends on user and id alone, or a repeat would be elsewhere.
func TestThePartitionIsTheIds(t *testing.T) {
	if p := periodOf(noonID); p != int(noon.Unix()/(30*24*60*60)) || p == timeless {
		t.Errorf("period %d", p)
	}
	if got := SentAt(noonID, noon.Add(time.Hour)); !got.Equal(noon) || got.Location() != time.UTC {
		t.Errorf("sent at %v", got)
	}
	for _, id := range []string{"", "order-17", "k-mCKsbGbFj3y0hLr0Vg1DqcNnbhC6Rb0d", strings.ReplaceAll(noonID, "-7", "-4"), "{" + noonID + "}", strings.ReplaceAll(noonID, "-", "")} {
		if p := periodOf(id); p != timeless {
			t.Errorf("%q is in period %d", id, p)
		}
		if got := SentAt(id, noon.Add(time.Microsecond)); !got.Equal(noon) || got.Location() != time.UTC {
			t.Errorf("%q was sent at %v", id, got)
		}
	}
}

// An erasure reaches every partition that can have rows, with a time that no row is behind.
func TestForgetReachesAll(t *testing.T) {
	f := &fakeTables{}
	if err := storeAtNoon(f, LeastKept).Forget(t.Context(), "u42"); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(f.said, "\n")
	newest := &Report{Sent: noon.Add(time.Minute), At: noon}
	for _, p := range []int{timeless, periodOf(noonID), periodAt(noon.Add(-MostKept)), periodAt(noon.Add(-200 * 24 * time.Hour))} {
		if !strings.Contains(all, fmt.Sprintf(" u42 %d]", p)) {
			t.Errorf("not period %d: %s", p, all)
		}
	}
	var stamp int64
	if _, err := fmt.Sscanf(f.said[0][len(deletePeriod):], "[%d u42", &stamp); err != nil || stamp <= newest.stamp() {
		t.Errorf("at %d, and rows have up to %d, %v", stamp, newest.stamp(), err)
	}
}

// Timestamps fall while the time of the report rises, and stay near that of the
// notification: an erasure now reaches all rows.
func TestTheFirstReportHasTheGreatestTimestamp(t *testing.T) {
	r := Report{Sent: noon}
	last := int64(1<<63 - 1)
	for _, after := range []time.Duration{-time.Minute, 0, time.Millisecond, time.Second, time.Hour, MostKept} {
		r.At = noon.Add(after)
		if r.stamp() >= last {
			t.Errorf("%v after: %d, not below %d", after, r.stamp(), last)
		}
		last = r.stamp()
		if d := noon.UnixMicro() - last; d > (12*time.Hour).Microseconds() || d < -time.Second.Microseconds() {
			t.Errorf("%v after: %d us before", after, d)
		}
	}
}

// A question looks at so many rows and no more, over all partitions, and says so.
func TestCountsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		rows, days, counted int
		more                bool
	}{
		{MostRows, 1, MostRows, true}, {MostRows / 2, 1, MostRows, false}, {MostRows + 5, 1, MostRows, true}, {MostRows/2 + 1, 1, MostRows, true}, {3, 365, 3 * 14, false},
	} {
		f := &fakeTables{rows: tt.rows}
		list, more, err := storeAtNoon(f, 0).Counts(t.Context(), &Question{User: "u42", App: "shop", From: noon.AddDate(0, 0, 1-tt.days), To: noon})
		if err != nil || more != tt.more || len(list) != 1 || list[0].Clicked != tt.counted {
			t.Errorf("%+v: %+v, %v, %v", tt, list, more, err)
		}
	}
}

// Errors say what was done, and keep their cause. Who has gone waits for no place.
func TestErrors(t *testing.T) {
	f := &fakeTables{err: errAway}
	s := storeAtNoon(f, 0)
	calls := map[string]func(context.Context) error{
		"looking at the table": s.Check, "writing a report": func(ctx context.Context) error { return s.Note(ctx, &Report{}) },
		"reading what was reported": func(ctx context.Context) error { _, err := s.Of(ctx, Key{}); return err },
		"counting by type and day": func(ctx context.Context) error {
			_, _, err := s.Counts(ctx, &Question{From: noon, To: noon})
			return err
		},
		"counting reports": func(ctx context.Context) error { _, err := s.Count(ctx, "u"); return err },
		"removing reports": func(ctx context.Context) error { return s.Forget(ctx, "u") },
	}
	for what, call := range calls {
		if err := call(t.Context()); !errors.Is(err, errAway) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(s.places) != 0 {
		t.Errorf("%d places are taken", len(s.places))
	}
	for range cap(s.places) {
		s.places <- struct{}{}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errAway)
	said := len(f.said)
	if err := s.Note(ctx, &Report{}); !errors.Is(err, errAway) || len(f.said) != said {
		t.Errorf("%v, %d statements", err, len(f.said)-said)
	}
}

// Events have names, and no others are any.
func TestEvents(t *testing.T) {
	for e, name := range map[Event]string{Clicked: "CLICKED", Unsubscribed: "UNSUBSCRIBED"} {
		if got, ok := ParseEvent(name); !ok || got != e || e.String() != name {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, name := range []string{"", "clicked", "OPENED", "event(20)"} {
		if _, ok := ParseEvent(name); ok {
			t.Errorf("%q is an event", name)
		}
	}
	if got := Event(22).String(); got != "event(22)" {
		t.Error(got)
	}
}
