package worker

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/segments"
)

// lifecycle writes a file in which user number 7 is in a segment of this name.
func lifecycle(t *testing.T, path string, version uint64, name string) {
	t.Helper()
	var b segments.Builder
	err := errors.Join(b.AddGroup("lifecycle", true, segments.ByRecord), b.AddUsers("lifecycle", name, segments.UsersOf(7)))
	if err != nil {
		t.Fatal(err)
	}
	set, err := b.Build(version, time.Unix(1_790_000_000, 0))
	if err == nil {
		err = segments.WriteFile(path, set)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A worker with a source of segments waits for the first file, uses newer ones, and
// keeps what it has when a newer one does not go with its rules.
func TestSegmentsAreFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.seg")
	c := configs.Default()
	c.Segments.Source = path
	g := &group{Options: Options{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}, health: newHealth()}
	t.Cleanup(g.close)
	rules := []limits.Rule{{Name: "week", Segments: []string{"lifecycle/new"}}}
	check := func(set *segments.Set) error { return missing(set, rules) }

	none, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := g.openSegments(none, check); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a file it is open: %v", err)
	}
	if ready, lines := g.health.report(); ready || !strings.Contains(strings.Join(lines, " "), "segments") {
		t.Errorf("it is ready without a file: %q", lines)
	}

	g.Metrics = prometheus.NewRegistry()
	lifecycle(t, path, 1, "new")
	s, err := g.openSegments(t.Context(), check)
	if err != nil {
		t.Fatal(err)
	}
	user := &push.User{Profile: push.Profile{Number: 7, HasNumber: true}}
	in := func(want ...string) {
		t.Helper()
		if got := s.of(nil, "ada", user); !slices.Equal(got, want) {
			t.Errorf("the user is in %q, want %q", got, want)
		}
	}
	in("lifecycle/new")
	lifecycle(t, path, 2, "active")
	if err := s.watcher.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "rule week") {
		t.Errorf("a file without a segment that a rule names: %v", err)
	}
	in("lifecycle/new")
	rules[0].Segments, rules[0].SegmentMax = nil, map[string]int{"lifecycle/active": 1}
	lifecycle(t, path, 3, "active")
	if err := s.watcher.Poll(t.Context()); err != nil {
		t.Error(err)
	}
	in("lifecycle/active")
}

// Without a source nobody is in a segment, and nothing is waited for.
func TestNoSegments(t *testing.T) {
	g := &group{Options: Options{Config: configs.Default()}}
	if s, err := g.openSegments(t.Context(), nil); s != nil || err != nil {
		t.Errorf("got %v, %v", s, err)
	}
	g.Config.Segments.Source = "ftp://example.com/users.seg"
	if _, err := g.openSegments(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "segments.source") {
		t.Errorf("an ftp source: %v", err)
	}
}
