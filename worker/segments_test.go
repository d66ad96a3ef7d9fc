package worker

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
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

// Rules and a file that do not go with each other come at the same time: only those
// that are first are put in use.
func TestRulesAndSegmentsChangeTogether(t *testing.T) {
	for _, tt := range []struct {
		why       string
		fileFirst bool
	}{
		{"rules while a file is checked", true},
		{"a file while rules are put in force", false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "users.seg")
			lifecycle(t, path, 1, "new")
			c := configs.Default()
			c.Segments.Source = path
			g := &group{Options: Options{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}, health: newHealth()}
			t.Cleanup(g.close)
			begun, second := make(chan struct{}), make(chan struct{}) // closed by the test's goroutine that is first, and by the other
			begin := sync.OnceFunc(func() { close(begun) })
			first := func() {
				begin()
				for range 10_000 { // where nothing holds it back, the second one ends here
					select {
					case <-second:
						return
					default:
						runtime.Gosched()
					}
				}
			}
			r, err := newRules(c, nil, nil, func(on bool) {
				if on && !tt.fileFirst {
					first()
				}
			}, g.Log, g.Metrics, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			s, err := g.openSegments(t.Context(), func(set *segments.Set) error {
				list := *r.list.Load()
				if set.Version() == 2 && tt.fileFirst {
					first()
				}
				return missing(set, list)
			})
			if err != nil {
				t.Fatal(err)
			}
			r.fits = s.fits
			lifecycle(t, path, 2, "active")
			named := *c
			named.Limits.StateVersion = 2
			named.Limits.Rules = []configs.Rule{{Name: "week", Per: "user", Max: 1, Window: time.Hour, Segments: []string{"lifecycle/new"}}}
			apply := func() error { return r.apply(&named, time.Now()) }
			poll := func() error { return s.watcher.Poll(t.Context()) }
			one, other := poll, apply
			if !tt.fileFirst {
				one, other = apply, poll
			}
			var refused error
			var running sync.WaitGroup
			running.Go(func() {
				defer close(second)
				<-begun
				refused = other()
			})
			if err := one(); err != nil {
				t.Errorf("the first one: %v", err)
			}
			begin() // also where it failed
			running.Wait()
			if refused == nil || !strings.Contains(refused.Error(), "there is no segment lifecycle/new in version 2") {
				t.Errorf("the second one: %v", refused)
			}
			if err := missing(s.watcher.Set(), *r.list.Load()); err != nil {
				t.Errorf("in use: %v", err)
			}
		})
	}
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
