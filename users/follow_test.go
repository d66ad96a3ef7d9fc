package users

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
)

// errBroken is what a follower says when it does not work.
var errBroken = errors.New("the connection broke")

// breaking is a follower of one partition, whose five offsets hold no record any more. It
// breaks at one of its steps, each counted from 1; 0 = not there. After ten polls it breaks
// in any case, so that who does not end fails and does not hang.
type breaking struct {
	spans, seek, poll int       // at which of these it breaks
	asked, polled     int       // how many there were
	sought            [][]int64 // where to
}

func (b *breaking) Spans(context.Context) ([]Span, error) {
	if b.asked++; b.asked == b.spans {
		return nil, errBroken
	}
	return []Span{{0, 5}}, nil
}

func (b *breaking) Seek(_ context.Context, offsets []int64) error {
	if b.sought = append(b.sought, offsets); len(b.sought) == b.seek {
		return errBroken
	}
	return nil
}

func (b *breaking) Poll(context.Context) ([]Fetched, error) {
	if b.polled++; b.polled == b.poll || b.polled > 10 {
		return nil, errBroken
	}
	return []Fetched{{Next: 5}}, nil
}

// A follower that does not go where it is told would hand out other records than those
// that come next: each of its steps that fails ends the following, and nothing is polled
// from where nobody knows. It is told its place once, as it loses by that what it has read
// ahead.
func TestFollowingEndsWithItsFollower(t *testing.T) {
	client, _ := inProcess(t)
	for _, tt := range []struct {
		why           string
		at            breaking
		sought, polls int
	}{
		{"no partitions", breaking{spans: 1}, 0, 0},
		{"no ends", breaking{spans: 2}, 0, 0},
		{"no place", breaking{seek: 1}, 1, 0},
		{"no records", breaking{poll: 1}, 1, 1},
		{"no more records", breaking{poll: 4}, 1, 4},
	} {
		client.FlushAll(t.Context())
		o := DefaultRegistryOptions()
		o.CheckInterval = time.Hour // so that no poll ends because of it
		f := tt.at
		r, err := NewRegistry(client, RegistryTopics{Follower: &f}, o, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.follow(t.Context()); !errors.Is(err, errBroken) || len(f.sought) != tt.sought || f.polled != tt.polls {
			t.Errorf("%s: sought %v, polled %d times, %v; want %d and %d", tt.why, f.sought, f.polled, err, tt.sought, tt.polls)
		}
		for _, offsets := range f.sought {
			if !slices.Equal(offsets, []int64{0}) {
				t.Errorf("%s: it is told %v, want the start", tt.why, offsets)
			}
		}
	}
}

// What is read of the topic from another place than its start, or not to the end, says
// nothing of the values that are to be rebuilt: they would lose what stood there.
func TestAReadingFailsWithItsFollower(t *testing.T) {
	keys := map[string]lostKey{shards.UserKey(shards.UserShard("ada"), "ada"): {kase: record.LostUser + "ada"}}
	for _, tt := range []struct {
		why   string
		at    breaking
		until []int64
		want  error
	}{
		{"as it should be", breaking{}, []int64{5}, nil},
		{"no partitions", breaking{spans: 1}, []int64{5}, errBroken},
		{"no place", breaking{seek: 1}, []int64{5}, errBroken},
		{"no records", breaking{poll: 1}, []int64{5}, errBroken},
		{"a partition less", breaking{}, []int64{5, 5}, errPartitions},
		{"a partition more", breaking{}, nil, errPartitions},
	} {
		f := tt.at
		if _, err := scan(t.Context(), &f, tt.until, keys); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.why, err, tt.want)
		}
		if tt.want == nil && f.polled != 1 {
			t.Errorf("%s: polled %d times, want once", tt.why, f.polled)
		}
	}
}
