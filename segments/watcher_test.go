package segments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// shelf is a Source in memory.
type shelf struct {
	mu    sync.Mutex
	file  []byte // guarded by mu
	err   error  // guarded by mu; of Open
	tag   string // guarded by mu
	opens int    // guarded by mu; bodies handed out
	cut   error  // guarded by mu; in the middle of a body
}

func (s *shelf) put(tag string, file []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tag, s.file, s.err, s.cut = tag, file, nil, nil
}

func (s *shelf) fail(open, cut error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.cut = open, cut
}

func (s *shelf) Open(_ context.Context, tag string) (*Contents, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if tag == s.tag && tag != "" {
		return nil, ErrUnchanged
	}
	s.opens++
	var body io.Reader = bytes.NewReader(s.file)
	if s.cut != nil {
		body = io.MultiReader(bytes.NewReader(s.file[:len(s.file)/2]), iotest.ErrReader(s.cut))
	}
	return &Contents{Body: io.NopCloser(body), Size: -1, Tag: s.tag}, nil
}

func (*shelf) String() string { return "shelf" }

// A set that did not go with the rules is put in use when they have changed, though
// the file has not, unless there is another one by then.
func TestWhatCouldNotBeUsedIsAskedAboutAgain(t *testing.T) {
	five, six, seven := fileOf(t, lifecycle(t, 5)), fileOf(t, lifecycle(t, 6)), fileOf(t, lifecycle(t, 7))
	var unfit error
	src := &shelf{}
	w := NewWatcher(src, WatcherOptions{Check: func(*Set) error { return unfit }})
	missing := errors.New("segment ties is missing")
	for i, step := range []struct {
		why   string
		tag   string
		file  []byte // nil = as before
		unfit error
		inUse uint64
		opens int // so far
		err   error
	}{
		{"the first one", "a", five, nil, 5, 1, nil},
		{"a rule names what it lacks", "b", six, missing, 5, 2, missing},
		{"still", "", nil, missing, 5, 2, missing},
		{"the rule is gone", "", nil, nil, 6, 2, nil},
		{"it comes back: what is in use is not asked about", "", nil, missing, 6, 2, nil},
		{"what is offered next is", "c", seven, missing, 6, 3, missing},
		{"what was before is put back", "b", six, missing, 6, 4, nil},
	} {
		if unfit = step.unfit; step.file != nil {
			src.put(step.tag, step.file)
		}
		err := w.Poll(t.Context())
		if !errors.Is(err, step.err) || w.Set().Version() != step.inUse || src.opens != step.opens || w.Status().Version != step.inUse {
			t.Fatalf("%d, %s: version %d, %d read, %v", i, step.why, w.Set().Version(), src.opens, err)
		}
	}
	// One that cannot be read comes between: what was refused is not kept, and read again.
	unfit = missing
	src.put("d", seven)
	refused := w.Poll(t.Context())
	src.put("e", six)
	src.fail(nil, io.ErrUnexpectedEOF)
	cut := w.Poll(t.Context())
	unfit = nil
	src.put("d", seven)
	if err := w.Poll(t.Context()); err != nil || w.Set().Version() != 7 {
		t.Errorf("version %d, %v (refused: %v, cut: %v)", w.Set().Version(), err, refused, cut)
	}
}

// A source that goes through everything: what is in use changes only for a
// newer, whole file.
func TestPolls(t *testing.T) {
	five := fileOf(t, lifecycle(t, 5))
	six := fileOf(t, lifecycle(t, 6))
	other, err := lifecycle(t, 5).As(6, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(six)
	flipped[len(flipped)-1] ^= 1
	broken, missing := errors.New("unreachable"), errors.New("segment ties is missing")
	reg := prometheus.NewRegistry()
	src := &shelf{}
	w := NewWatcher(src, WatcherOptions{Metrics: NewMetrics(reg), Now: func() time.Time { return noon }, Check: func(s *Set) error {
		if s.Version() == 7 {
			return missing
		}
		return nil
	}})
	if w.Set() != nil || w.Status().Version != 0 {
		t.Fatal("there is a set before the first one was loaded")
	}
	opens := 0
	for i, step := range []struct {
		why    string
		do     func()
		reason Reason
		err    string // empty = none
		inUse  uint64
		opened bool // something was downloaded
	}{
		{"nothing can be reached yet", func() { src.fail(broken, nil) }, "", "unreachable", 0, false},
		{"a truncated first one", func() { src.put("a", five[:100]) }, RefusedTruncated, "shelf: truncated", 0, true},
		{"the first one", func() { src.put("b", five) }, "", "", 5, true},
		{"the same", func() {}, "", "", 5, false},
		{"the same, and another tag", func() { src.put("c", five) }, "", "", 5, true},
		{"the same, without a tag", func() { src.put("", five) }, "", "", 5, true},
		{"a truncated one", func() { src.put("d", six[:len(six)-1]) }, RefusedTruncated, "truncated", 5, true},
		{"it is not read again", func() {}, RefusedTruncated, "truncated", 5, false},
		{"a damaged one", func() { src.put("e", flipped) }, RefusedChecksum, "does not have its checksum", 5, true},
		{"no segment file", func() { src.put("f", []byte("<html>")) }, RefusedFormat, "not a segment file", 5, true},
		{"unreachable", func() { src.fail(broken, nil) }, "", "unreachable", 5, false},
		{"reachable, still no segment file", func() { src.fail(nil, nil) }, RefusedFormat, "not a segment file", 5, false},
		{"a connection that is cut", func() { src.put("g", six); src.fail(nil, io.ErrUnexpectedEOF) }, "", "unexpected EOF", 5, true},
		{"it is read again", func() { src.fail(nil, nil) }, "", "", 6, true},
		{"an older one", func() { src.put("h", five) }, RefusedVersion, "version 5 is older than version 6, which is in use", 6, true},
		{"the version again with other contents", func() { src.put("i", fileOf(t, other)) }, RefusedVersion, "version 6 again, with other contents", 6, true},
		{"one that cannot be used", func() { src.put("j", fileOf(t, lifecycle(t, 7))) }, RefusedUse, "version 7: segment ties is missing", 6, true},
		{"the one in use again", func() { src.put("k", six) }, "", "", 6, true},
		{"a newer one", func() { src.put("l", fileOf(t, lifecycle(t, 8))) }, "", "", 8, true},
	} {
		step.do()
		err := w.Poll(t.Context())
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) || reasonOf(err) != step.reason {
			t.Fatalf("%d, %s: %v, want %q", i, step.why, err, step.err)
		}
		if step.reason == RefusedUse && !errors.Is(err, missing) {
			t.Errorf("%d, %s: it does not wrap what Check returned", i, step.why)
		}
		if s := w.Set(); s == nil && step.inUse != 0 || s != nil && s.Version() != step.inUse {
			t.Fatalf("%d, %s: another set is in use", i, step.why)
		}
		if st := w.Status(); st.Version != step.inUse || (st.Err == nil) != (err == nil) || !st.Polled.Equal(noon) || st.Source != "shelf" {
			t.Fatalf("%d, %s: %+v", i, step.why, st)
		}
		if (src.opens > opens) != step.opened {
			t.Errorf("%d, %s: %d downloads, %d before", i, step.why, src.opens, opens)
		}
		opens = src.opens
	}
	want := `
# HELP push_segments_polls_total Times the source of segments was asked, by result: loaded, unchanged, refused (the newest file must not be used, the one before stays), failed (it could not be read).
# TYPE push_segments_polls_total counter
push_segments_polls_total{result="failed"} 3
push_segments_polls_total{result="loaded"} 3
push_segments_polls_total{result="refused"} 9
push_segments_polls_total{result="unchanged"} 4
# HELP push_segments_refused_total Segment files refused, by reason; each file counts once.
# TYPE push_segments_refused_total counter
push_segments_refused_total{reason="bitmap"} 0
push_segments_refused_total{reason="checksum"} 1
push_segments_refused_total{reason="format"} 1
push_segments_refused_total{reason="overlap"} 0
push_segments_refused_total{reason="size"} 0
push_segments_refused_total{reason="truncated"} 2
push_segments_refused_total{reason="use"} 1
push_segments_refused_total{reason="version"} 2
# HELP push_segments_users Users in a segment, of the version in use.
# TYPE push_segments_users gauge
push_segments_users{group="interests",segment="hats"} 66669
push_segments_users{group="interests",segment="shoes"} 3
push_segments_users{group="lifecycle",segment="active"} 200003
push_segments_users{group="lifecycle",segment="asleep"} 0
push_segments_users{group="lifecycle",segment="new"} 8575
# HELP push_segments_version Version of the segments in use; 0 = none loaded yet.
# TYPE push_segments_version gauge
push_segments_version 8
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "push_segments_polls_total", "push_segments_refused_total", "push_segments_users", "push_segments_version"); err != nil {
		t.Error(err)
	}
}

// A segment that is gone is no longer counted.
func TestMetricsOfSegmentsThatAreGone(t *testing.T) {
	reg := prometheus.NewRegistry()
	src := &shelf{}
	w := NewWatcher(src, WatcherOptions{Metrics: NewMetrics(reg)})
	for i, s := range []*Set{lifecycle(t, 1), exclusiveOf(t, 2, map[uint32]string{7: "x"}, "x")} {
		src.put(fmt.Sprint(i), fileOf(t, s))
		if err := w.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const want = "# HELP push_segments_users Users in a segment, of the version in use.\n# TYPE push_segments_users gauge\npush_segments_users{group=\"g\",segment=\"x\"} 1\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "push_segments_users"); err != nil {
		t.Error(err)
	}
}

// Run polls about every interval, logs each fault once, and ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		src := &shelf{}
		src.put("a", fileOf(t, lifecycle(t, 5)))
		w := NewWatcher(src, WatcherOptions{Interval: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1) // closed by nobody; takes the one result
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		if s := w.Set(); s == nil || s.Version() != 5 {
			t.Fatal("the first set was not loaded at once")
		}
		first := w.Status().Polled
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if d := w.Status().Polled.Sub(first); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("polled again after %v", d)
		}
		src.put("b", []byte("x"))
		time.Sleep(30 * time.Second)
		src.put("c", fileOf(t, lifecycle(t, 6)))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if v := w.Set().Version(); v != 6 || w.Status().Err != nil {
			t.Errorf("version %d after 11 s: %+v", v, w.Status())
		}
		src.put("d", []byte("x")) // the same fault as before, after a good file
		time.Sleep(11 * time.Second)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "segments loaded"); n != 2 {
			t.Errorf("%d sets were logged:\n%s", n, log.String())
		}
		if n := strings.Count(log.String(), "cannot be loaded"); n != 2 {
			t.Errorf("%d faults were logged:\n%s", n, log.String())
		}
	})
}

// stuck is a source that does not answer.
type stuck struct{}

func (stuck) Open(ctx context.Context, _ string) (*Contents, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("stuck: %w", ctx.Err())
}
func (stuck) String() string { return "stuck" }

// noting keeps the context that it was asked with.
type noting struct{ ctx context.Context }

func (n *noting) Open(ctx context.Context, _ string) (*Contents, error) {
	n.ctx = ctx
	return nil, ErrUnchanged
}
func (*noting) String() string { return "noting" }

// What a poll has begun ends with it.
func TestThePollsContextEnds(t *testing.T) {
	src := &noting{}
	if err := NewWatcher(src, WatcherOptions{}).Poll(t.Context()); err != nil || src.ctx.Err() == nil {
		t.Errorf("%v, %v", err, src.ctx.Err())
	}
}

func TestAPollTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWatcher(stuck{}, WatcherOptions{Timeout: time.Minute})
		began := time.Now()
		if err := w.Poll(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if d := time.Since(began); d != time.Minute {
			t.Errorf("after %v", d)
		}
	})
}

// With -race: look-ups go on while sets are exchanged, and see one set or the
// other.
func TestHotSwap(t *testing.T) {
	src := &shelf{}
	files := [][]byte{}
	for v := range uint64(20) {
		files = append(files, fileOf(t, lifecycle(t, v+1)))
	}
	src.put("0", files[0])
	w := NewWatcher(src, WatcherOptions{})
	if err := w.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	done := make(chan struct{}) // closed by this function
	for range 3 {
		wg.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				s := w.Set()
				if got, ok := s.Of("lifecycle", 250_000); got != "active" || !ok || s.Version() < last {
					t.Errorf("version %d after %d: %q", s.Version(), last, got)
					return
				}
				last = s.Version()
			}
		})
	}
	for i, f := range files[1:] {
		src.put(fmt.Sprint(i+1), f)
		if err := w.Poll(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	if v := w.Set().Version(); v != 20 {
		t.Errorf("version %d at the end", v)
	}
}
