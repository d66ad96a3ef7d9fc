package users

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/users/state"
)

// The lag is of all partitions: of each what can be read still, and never less than
// nothing. What is in quarantine is of all shards.
func TestWhatIsReported(t *testing.T) {
	r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.applied = 11
	r.spans = []Span{{0, 10}, {4, 20}, {0, 5}} // the second lost its start, the third is behind what was read
	r.pos = []int64{7, 0, 9}
	for s, unread := range map[int]int64{3: 2, 9: 3} {
		r.shards[s] = shardState{Shard: state.Shard{Ready: true, Unread: unread}}
	}
	r.report() // nobody has asked for it
	var said []Progress
	r.options.Progress = func(p Progress) { said = append(said, p) }
	r.report()
	if want := []Progress{{Ready: 2, Lag: 3 + 16, Applied: 11}}; !slices.Equal(said, want) {
		t.Errorf("it says %+v, want %+v", said, want)
	}
	lag, ready, unread := testutil.ToFloat64(r.metrics.lag), testutil.ToFloat64(r.metrics.ready), testutil.ToFloat64(r.metrics.quarantined)
	if lag != 19 || ready != 2 || unread != 5 {
		t.Errorf("the figures are a lag of %v, %v shards and %v parts in quarantine; want 19, 2 and 5", lag, ready, unread)
	}
}

// A failure is counted once, and nobody takes the last lag for one of now.
func TestWhatIsSaidOfAFailure(t *testing.T) {
	r, err := NewRegistry(nil, RegistryTopics{}, DefaultRegistryOptions(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.applied = 11
	r.fail(errAny) // nobody has asked for it
	var said []Progress
	r.options.Progress = func(p Progress) { said = append(said, p) }
	r.fail(errAny)
	if len(said) != 1 || !errors.Is(said[0].Err, errAny) || said[0].Applied != 11 || said[0].Ready != 0 {
		t.Errorf("it says %+v", said)
	}
	if n, lag := testutil.ToFloat64(r.metrics.errors), testutil.ToFloat64(r.metrics.lag); n != 2 || !math.IsInf(lag, 1) {
		t.Errorf("%v errors and a lag of %v, want 2 and +Inf", n, lag)
	}
}

// Who waits for a shard wants to know for which.
func TestAnUnbuiltShardIsNamed(t *testing.T) {
	if text := (&UnbuiltError{Shard: 137}).Error(); !strings.Contains(text, "137") {
		t.Errorf("it says %q, and not which shard", text)
	}
}
