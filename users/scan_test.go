package users

import (
	"context"
	"testing"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
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
