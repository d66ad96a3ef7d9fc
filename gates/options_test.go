package gates_test

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
)

func TestGateOptionsThatCannotWork(t *testing.T) {
	for name, spoil := range map[string]func(*gates.Options){
		"no window":         func(o *gates.Options) { o.Window = 0 },
		"no answers":        func(o *gates.Options) { o.Answers = 0 },
		"all must be bad":   func(o *gates.Options) { o.Share = 1 },
		"no pause":          func(o *gates.Options) { o.FirstPause = 0 },
		"no halt":           func(o *gates.Options) { o.HaltPause = 0 },
		"shrinking pauses":  func(o *gates.Options) { o.LongestPause = o.HaltPause - 1 },
		"no probes":         func(o *gates.Options) { o.FullProbes = 0 },
		"no first probe":    func(o *gates.Options) { o.FirstProbes = 0 },
		"negative failures": func(o *gates.Options) { o.Failures = -1 },
		"endless failures":  func(o *gates.Options) { o.Failures = 1001 },
		"impatient":         func(o *gates.Options) { o.ProbeTimeout = 0 },
		"holds always":      func(o *gates.Options) { o.HoldAfter = 0 },
		"holds never":       func(o *gates.Options) { o.HoldSpan = o.HoldAfter - 1 },
		"no jitter":         func(o *gates.Options) { o.Jitter = nil },
		"no retry floor":    func(o *gates.Options) { o.Retries.Floor = 0 },
		"negative share":    func(o *gates.Options) { o.Retries.Share = -1 },
		"burst below one":   func(o *gates.Options) { o.DeadLetters.Burst = 0.5 },
		"negative dlq rate": func(o *gates.Options) { o.DeadLetters.Floor = -1 },
		"any bad one stops": func(o *gates.Options) { o.Share = 0 },
		"long first pause":  func(o *gates.Options) { o.FirstPause = o.LongestPause + 1 },
		"negative wait":     func(o *gates.Options) { o.ProbeWait = -1 },
		"endless share":     func(o *gates.Options) { o.Retries.Share = math.Inf(1) },
		"endless budget":    func(o *gates.Options) { o.Retries.Floor, o.Retries.Burst = math.Inf(1), math.Inf(1) },
		"no number":         func(o *gates.Options) { o.DeadLetters.Floor = math.NaN() },
	} {
		if err := newOf(spoil); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestGateOptionsThatJustWork(t *testing.T) {
	for name, change := range map[string]func(*gates.Options){
		"a slice of a nanosecond": func(o *gates.Options) { o.Window = 10 },
		"judged by one answer":    func(o *gates.Options) { o.Answers = 1 },
		"pauses that never grow":  func(o *gates.Options) { o.FirstPause, o.LongestPause = o.HaltPause, o.HaltPause },
		"one probe opens":         func(o *gates.Options) { o.FullProbes = 1 },
		"all probes at once":      func(o *gates.Options) { o.FirstProbes = o.FullProbes + 1 },
		"no failures in a row":    func(o *gates.Options) { o.Failures = 0 },
		"very many in a row":      func(o *gates.Options) { o.Failures = 1000 },
		"holds after all of it":   func(o *gates.Options) { o.HoldSpan = o.HoldAfter },
		"waits for no probe":      func(o *gates.Options) { o.ProbeWait = 0 },
		"successes earn nothing":  func(o *gates.Options) { o.Retries.Share = 0 },
		"one token at a time":     func(o *gates.Options) { o.DeadLetters.Burst = 1 },
	} {
		if err := newOf(change); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestDefaultJitter(t *testing.T) {
	jitter := gates.DefaultOptions().Jitter
	for _, d := range []time.Duration{-1, 0, 1} { // in [0, 1) there is only 0
		if got := jitter(d); got != 0 {
			t.Errorf("of %v: got %v, want 0", d, got)
		}
	}
	differ := map[time.Duration]bool{}
	for range 100 {
		got := jitter(time.Second)
		if differ[got] = true; got < 0 || got >= time.Second {
			t.Fatalf("of a second: got %v", got)
		}
	}
	if len(differ) < 50 { // of a thousand million
		t.Errorf("got %d values in 100, want them random", len(differ))
	}
}

// newOf makes gates with changed options.
func newOf(change func(*gates.Options)) error {
	o := gateOptions()
	change(&o)
	_, err := gates.New(nil, o, gates.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler), startTime)
	return err
}
