//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/chart"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/bench/servers"
)

// values are those of points.
func values(points []chart.Point) (list []float64) {
	for _, p := range points {
		list = append(list, p.Value)
	}
	return list
}

// Each thing is drawn in the second in which it was seen; what is outside is not.
func TestPoints(t *testing.T) {
	began := time.Date(2026, 11, 24, 1, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	a := chart.Axis{From: began, To: at(3000)}
	if got := values(commitPoints(a, []sample{{at(-50), 100}, {at(10), 300}, {at(900), 400}, {at(2500), 1000}, {at(3100), 9000}})); !slices.Equal(got, []float64{300, 0, 600}) {
		t.Errorf("committed %v", got)
	}
	r := servers.Rates{From: at(-400), Step: 200 * time.Millisecond, Counts: []int64{7, 7, 1, 2, 3, 4, 5, 6}}
	if got := values(acceptPoints(a, r)); !slices.Equal(got, []float64{15, 6, 0}) {
		t.Errorf("accepted %v", got)
	}
	took := func(from, ms int) latency.Wait {
		return latency.Wait{At: at(from), Took: time.Duration(ms) * time.Millisecond}
	}
	median, worst := waitPoints(a, []latency.Wait{took(100, 5), took(200, 9), took(300, 7), took(2100, 40), took(5000, 1)})
	if !slices.Equal(values(median), []float64{7, 40}) || !slices.Equal(values(worst), []float64{9, 40}) || !median[1].At.Equal(at(2500)) {
		t.Errorf("median %v, worst %v", median, worst)
	}
}

// A run without a path draws nothing; with one that cannot be written it fails.
func TestPlotFile(t *testing.T) {
	now := time.Now()
	r := &Result{began: now, from: now, to: now.Add(time.Second), Embedded: true}
	if err := r.plot(""); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "plot.svg")
	if err := r.plot(path); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "embedded servers") {
		t.Errorf("%v: %s", err, text)
	}
	if err := r.plot(filepath.Join(path, "below")); err == nil {
		t.Error("it was written into a file")
	}
}
