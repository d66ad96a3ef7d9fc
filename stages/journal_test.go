package stages_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// someJournals take entries, or fail.
type someJournals struct {
	written []journal.Entry
	calls   int
	err     error
}

func (s *someJournals) Put(_ context.Context, entries []journal.Entry) error {
	s.calls++
	if s.err == nil {
		s.written = append(s.written, entries...)
	}
	return s.err
}

// What is a user's and not decided yet is noted, as what it is; copies, what cannot be read and
// bare devices are not.
func TestJournalNotes(t *testing.T) {
	b := &pipeline.Batch{Items: []pipeline.Item{
		item("a", func(it *pipeline.Item) {
			it.UserID, it.SenderID, it.Type, it.FirstSeen = "u1", "orders", "news", push.At(hour.Add(1500*time.Microsecond))
		}),
		item("copy", func(it *pipeline.Item) { it.UserID, it.Verdict = "u1", push.Duplicate }),
		item("broken", func(it *pipeline.Item) { it.UserID, it.Verdict = "u1", push.Dead }),
		item("bare", func(it *pipeline.Item) { it.UserID = "" }),
		item("named", func(it *pipeline.Item) { it.UserID, it.Message.Device.Token = "u2", "aa" }),
	}}
	s := &someJournals{}
	stage := &stages.Journal{Journals: s, Lane: "bulk", Kept: 48 * time.Hour}
	if err := stage.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(s.written) != 2 || s.written[1].ID != "named" || s.written[1].User != "u2" {
		t.Fatalf("%+v", s.written)
	}
	want := journal.Entry{Position: journal.Position(inbox.PositionOf("a", hour.Add(1500*time.Microsecond))), User: "u1", App: b.Items[0].App, Sender: "orders", Type: "news", Lane: "bulk", Kept: 48 * time.Hour}
	if s.written[0] != want {
		t.Errorf("%+v, want %+v", s.written[0], want)
	}
	for i, want := range []push.Verdict{push.Undecided, push.Duplicate, push.Dead, push.Undecided, push.Undecided} {
		if b.Items[i].Verdict != want {
			t.Errorf("%s has become %s", b.Items[i].ID, b.Items[i].Verdict)
		}
	}
	s.err = errors.New("away")
	if err := stage.Apply(t.Context(), b); !errors.Is(err, s.err) {
		t.Errorf("a store that is away: %v", err)
	}
	if err := stage.Apply(t.Context(), &pipeline.Batch{Items: b.Items[1:4]}); err != nil || s.calls != 2 {
		t.Errorf("nothing to note: %d calls, %v", s.calls, err)
	}
}

// It runs right behind Dedupe, where a lane asks for it.
func TestJournalComesEarly(t *testing.T) {
	var names []pipeline.Step
	for _, s := range stages.NewOrder(&stages.Dedupe{}, &stages.Journal{}, &stages.Accept{}, nil, nil, &stages.Preferences{}, &stages.Devices{}, nil, &stages.Limits{}) {
		names = append(names, s.Name())
	}
	if got := fmt.Sprint(names); got != "[dedupe journal accept preferences devices limits]" {
		t.Error(got)
	}
}
