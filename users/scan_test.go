package users

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// oneRun is a follower that hands out one run.
type oneRun struct {
	Follower
	run Fetched
}

func (f oneRun) Spans(context.Context) ([]Span, error)   { return []Span{{0, f.run.Next}}, nil }
func (oneRun) Seek(context.Context, []int64) error       { return nil }
func (f oneRun) Poll(context.Context) ([]Fetched, error) { return []Fetched{f.run}, nil }

// A rebuild reads the topic up to where the registry is: what comes from there on, the
// registry reads itself, and a change is not applied twice.
func TestARebuildReadsUpToTheRegistry(t *testing.T) {
	run := Fetched{Next: 20}
	for offset := range int64(20) {
		key := record.PreferencesKey("ada")
		run.Records = append(run.Records, FetchedRecord{Record: Record{Key: key, Value: []byte(`{"v":1}`)}, Offset: offset})
	}
	keys := map[string]lostKey{shards.UserKey(shards.UserShard("ada"), "ada"): {}}
	changes, err := scan(t.Context(), oneRun{run: run}, []int64{7}, keys)
	if err != nil || len(changes) != 7 || changes[6].Offset != 6 {
		t.Errorf("%d changes, %v; want those of the offsets 0 to 6", len(changes), err)
	}
}

// What was rebuilt is written again when another registry has written the shard meanwhile:
// the topic is not read once more, and nothing counts as rebuilt before it is.
func TestARebuiltValueIsWrittenAgainWhenFenced(t *testing.T) {
	l := looksAgain(t, state.Version{Build: 7, Write: 2}, map[string][]byte{"ada": []byte("garbage")})
	lost := lostKey{shard: l.shard, kase: record.LostUser + "ada", build: 7}
	if err := l.client.SAdd(t.Context(), state.OpenKey(l.shard), lost.kase).Err(); err != nil {
		t.Fatal(err)
	}
	rec := FetchedRecord{Record: Record{Key: record.PreferencesKey("ada"), Value: []byte(`{"opt_out_types":["news"]}`)}, Offset: 3}
	c, err := readChange(0, &rec, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l.pos = []int64{5}
	done := make(chan scanned, 1)
	done <- scanned{changes: []change{c}}
	close(done)
	l.repair = repair{keys: map[string]lostKey{lost.key(): lost}, next: []int64{5}, cancel: func() {}, done: done}
	for _, want := range []struct {
		types    []string
		marks    push.Quarantine
		repaired float64
		open     bool
	}{{nil, push.RecordUnread, 0, true}, {[]string{"news"}, 0, 1, false}} {
		if err := l.finishRepair(t.Context()); err != nil {
			t.Fatal(err)
		}
		open, err := l.client.SIsMember(t.Context(), state.OpenKey(l.shard), lost.kase).Result()
		if err != nil {
			t.Fatal(err)
		}
		var ada push.User
		if err := NewReader(l.client, false).Fetch(t.Context(), []string{"ada"}, []*push.User{&ada}); err != nil {
			t.Fatal(err)
		}
		repaired := testutil.ToFloat64(l.metrics.repaired)
		if !slices.Equal(ada.Preferences.Types, want.types) || ada.Quarantine != want.marks || repaired != want.repaired || open != want.open {
			t.Errorf("ada is %+v, %v values are rebuilt, the case is open: %v; want %+v", ada, repaired, open, want)
		}
		if l.repair.has(lost.key()) != want.open {
			t.Errorf("is being rebuilt: %v, want %v", !want.open, want.open)
		}
	}
}
