package worker

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
)

// scripted is a topic of one partition that answers polls by a script.
type scripted struct {
	polls []func(ctx context.Context) ([]kafka.Record, error)
	end   int64
	gaps  map[int32]int64
}

func (s *scripted) StartOffsets(context.Context) (map[int32]int64, error) {
	return map[int32]int64{0: 0}, nil
}

func (s *scripted) EndOffsets(context.Context) (map[int32]int64, error) {
	return map[int32]int64{0: s.end}, nil
}

func (s *scripted) Seek(map[int32]int64) {}

func (s *scripted) Gaps(context.Context, map[int32]int64) (map[int32]int64, error) {
	return maps.Clone(s.gaps), nil
}

func (s *scripted) Poll(ctx context.Context, _ int) ([]kafka.Record, error) {
	if len(s.polls) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	poll := s.polls[0]
	s.polls = s.polls[1:]
	return poll(ctx)
}

func sought(t *testing.T, s *scripted) *usersFollower {
	f := &usersFollower{follower: s}
	if err := f.Seek(t.Context(), []int64{0}); err != nil {
		t.Fatal(err)
	}
	return f
}

// What came while the poll's time ended is not read a second time: to drop it
// would lose users.
func TestUsersFollowerKeepsWhatCameAtTheEndOfItsTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := sought(t, &scripted{end: 3, polls: []func(context.Context) ([]kafka.Record, error){
		func(context.Context) ([]kafka.Record, error) {
			cancel()
			return []kafka.Record{{Offset: 0}, {Offset: 1}, {Offset: 2}}, context.Canceled
		},
	}})
	runs, err := f.Poll(ctx)
	if err != nil || len(runs) != 1 || len(runs[0].Records) != 3 || runs[0].Next != 3 {
		t.Errorf("runs %+v, error %v", runs, err)
	}
	if runs, err := f.Poll(ctx); !errors.Is(err, context.Canceled) || len(runs) > 0 {
		t.Errorf("afterwards: runs %+v, error %v", runs, err)
	}
}

func TestUsersFollowerTellsAnErrorThatCameWithRecords(t *testing.T) {
	broken := errors.New("offset out of range")
	f := sought(t, &scripted{end: 1, polls: []func(context.Context) ([]kafka.Record, error){
		func(context.Context) ([]kafka.Record, error) { return []kafka.Record{{Offset: 0}}, broken },
	}})
	if runs, err := f.Poll(t.Context()); err != nil || len(runs) != 1 {
		t.Errorf("runs %+v, error %v", runs, err)
	}
	if _, err := f.Poll(t.Context()); !errors.Is(err, broken) {
		t.Errorf("error is %v, want %v", err, broken)
	}
}

// The registry polls for a second at most, between two looks at its shards;
// offsets without records are found all the same.
func TestUsersFollowerFindsGapsInShortPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sought(t, &scripted{end: 7, gaps: map[int32]int64{0: 7}})
		var got []users.Fetched
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
			runs, err := f.Poll(ctx)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			got = append(got, runs...)
		}
		if len(got) != 1 || got[0].Next != 7 || len(got[0].Records) != 0 {
			t.Errorf("runs %+v, want one up to offset 7", got)
		}
	})
}
