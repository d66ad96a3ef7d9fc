package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

// lane is a lane's own topic and the rows of its notifications, in memory.
type lane struct {
	*queue
	rows  map[string][]push.Row
	notes []kafka.Replay
}

func (l *lane) OpenLog(string) (Log, error) { l.open++; return l, nil }

func (l *lane) Between(_ context.Context, since, until time.Time) (kafka.Extent, error) {
	return l.extent(func(d *kafka.DeadLetter) bool {
		return !d.Timestamp.Before(since) && (until.IsZero() || d.Timestamp.Before(until))
	}), nil
}

func (l *lane) Note(_ context.Context, r kafka.Replay) error {
	l.notes = append(l.notes, r)
	return nil
}

func (l *lane) Read(ctx context.Context, e kafka.Extent, each func(*kafka.DeadLetter) error) error {
	return l.queue.Read(ctx, e, each)
}

// ledger is the status store of a lane.
type ledger struct{ *lane }

func (l ledger) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	rows := make([][]push.Row, len(ids))
	for i, id := range ids {
		rows[i] = l.rows[id]
	}
	return rows, nil
}

// became gives the notification with this number rows of user "u".
func (l *lane) became(n int, rows ...push.Row) {
	for i := range rows {
		rows[i].UserHash = push.UserHash("u")
	}
	l.rows[fmt.Sprintf("n%d", n)] = rows
}

func newLane(n int) *lane {
	l := &lane{queue: newQueue(n), rows: map[string][]push.Row{}}
	for _, d := range l.letters {
		d.Topic, d.Reason, d.Origin = "push", "", d.String()
	}
	return l
}

func (l *lane) replay(o ReplayOptions) (Replayed, error) {
	o.Rate, o.List = 1000, 3
	return of(l.queue).Replay(context.Background(), l, ledger{l}, o)
}

func shedAt(step int16) push.Row {
	return push.Row{State: push.StateShed, Step: step, Reason: "depth:class=low depth=300 threshold=200"}
}

func TestReplaySendsWhatIsShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(9)
		l.became(0, shedAt(0))
		l.became(1, push.Row{State: push.StateDelivered, Device: "d"})
		l.became(2, shedAt(0), push.Row{State: push.StateDelivered, Device: "d", Step: 1}) // replayed before
		l.became(3, shedAt(0), push.Row{State: push.StateRetrying, Device: "d", Step: 1})  // and under way
		l.became(4, shedAt(3))
		l.became(5, shedAt(0))
		l.letters[5].FirstSeen = time.Now().Add(-1000 * time.Hour) // past the lane's greatest age
		l.rows["n6"] = []push.Row{{State: push.StateShed, UserHash: push.UserHash("another")}}
		l.became(7, shedAt(0))
		l.letters[7].Value = l.letters[0].Value // a copy of the first
		l.letters[8].Value = []byte("no JSON")

		dry, err := l.replay(ReplayOptions{})
		if err != nil || !dry.DryRun || dry.Replayed != 2 || len(l.sent)+len(l.notes) > 0 {
			t.Fatalf("a dry run: %+v, %d sent, %d noted: %v", dry, len(l.sent), len(l.notes), err)
		}
		v, err := l.replay(ReplayOptions{Do: true, By: "ops"})
		if err != nil || v.DryRun || v.Read != 9 || v.Matched != 4 || v.Replayed != 2 || v.Skipped[SkipExpired] != 1 || v.Skipped[SkipCopy] != 1 {
			t.Errorf("got %+v: %v", v, err)
		}
		var sent []string
		for _, d := range l.sent {
			sent = append(sent, fmt.Sprint(d.Offset, " ", d.Step(), " ", d.Reason))
		}
		want := []string{"0 0 depth:class=low depth=300 threshold=200", "4 3 depth:class=low depth=300 threshold=200"}
		if !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
		if len(l.notes) != 2 || l.notes[0].Done || l.notes[0].By != "ops" || !l.notes[1].Done || l.notes[1].Sent != 2 || l.notes[0].At != l.notes[1].At {
			t.Errorf("noted %+v", l.notes)
		}
		if l.open != 0 {
			t.Errorf("%d logs are open", l.open)
		}
	})
}

func TestReplayKeepsLimitAndTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(2000)
		began := time.Now()
		for i, d := range l.letters {
			d.Timestamp, d.FirstSeen = began.Add(time.Duration(i)*time.Millisecond), began
			l.became(i, shedAt(0))
		}
		v, err := l.replay(ReplayOptions{Do: true, Limit: 700, Since: began.Add(100 * time.Millisecond), Until: began.Add(1900 * time.Millisecond)})
		if err != nil || v.Replayed != 700 || len(l.sent) != 700 || l.sent[0].Offset != 100 || l.sent[699].Offset != 799 || len(v.Shed) != 3 {
			t.Errorf("got %d, %d sent, %d named: %v", v.Replayed, len(l.sent), len(v.Shed), err)
		}
		if took := time.Since(began); took < 600*time.Millisecond || took > time.Second {
			t.Errorf("700 at 1,000/s took %v", took)
		}
		l.sent, l.sendCut = nil, errors.New("cut")
		v, err = l.replay(ReplayOptions{Do: true})
		more, ok := errors.AsType[*UncountedError](err)
		if !ok || v.Replayed != 0 || more.Letters != len(l.sent) || l.notes[len(l.notes)-1].Done {
			t.Errorf("a cut replay: %+v, %v", v, err)
		}
	})
}
