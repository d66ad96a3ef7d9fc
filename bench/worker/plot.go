//go:build linux

package worker

import (
	"fmt"
	"os"
	"time"

	"github.com/pushfleet/pushfleet/bench/chart"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/bench/servers"
)

// plotStep is how long a step of the plot is.
const plotStep = time.Second

// plot draws rate and latency over time into a file; none when path is empty.
func (r *Result) plot(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	defer f.Close()
	a := chart.Axis{From: r.began, To: r.to.Add(plotStep)}
	median, worst := waitPoints(a, r.waits)
	servers := "real servers"
	if r.Embedded {
		servers = "embedded servers"
	}
	text := []string{
		fmt.Sprintf("%s, %d cores, %s, %s; %.1f cores busy with something else", r.Date.Format(time.DateTime), r.Cores, r.Go, servers, r.OthersCores),
		fmt.Sprintf("%.0f notifications/s, %.1f us of the worker's CPU each; counted from %.1f to %.1f s", r.Rate, r.WorkerCPU,
			r.from.Sub(r.began).Seconds(), r.to.Sub(r.began).Seconds()),
	}
	err = chart.File(f, "One worker and its backlog", text, a, []chart.Panel{
		{Title: "Notifications committed and pushes accepted", Unit: "a second", Series: []chart.Series{
			{Class: "c1", Name: "committed", Points: commitPoints(a, r.committed)}, {Class: "c2", Name: "accepted", Points: acceptPoints(a, r.accepted)}}},
		{Title: "One-time passwords beside it, from produce to acceptance", Unit: "ms", Series: []chart.Series{
			{Class: "c3", Name: "slowest", Points: worst}, {Class: "c1", Name: "median", Points: median}}},
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// steps is the number of steps on an axis, and the step of a moment; -1 = it is outside.
func steps(a chart.Axis) (n int, of func(time.Time) int) {
	n = int(a.To.Sub(a.From) / plotStep)
	return n, func(t time.Time) int {
		if i := int(t.Sub(a.From) / plotStep); !t.Before(a.From) && i < n {
			return i
		}
		return -1
	}
}

// middle is the moment that stands for a step.
func middle(a chart.Axis, i int) time.Time {
	return a.From.Add(time.Duration(i)*plotStep + plotStep/2)
}

// commitPoints are the notifications committed in each step; what came between two samples counts for the later one.
func commitPoints(a chart.Axis, samples []sample) (points []chart.Point) {
	n, of := steps(a)
	counts := make([]int64, n)
	var last int64
	for _, s := range samples {
		if i := of(s.at); i >= 0 {
			counts[i] += s.committed - last
		}
		last = s.committed
	}
	return rate(a, counts)
}

// acceptPoints are the pushes accepted in each step.
func acceptPoints(a chart.Axis, r servers.Rates) []chart.Point {
	n, of := steps(a)
	counts := make([]int64, n)
	for i, count := range r.Counts {
		if step := of(r.From.Add(time.Duration(i) * r.Step)); step >= 0 {
			counts[step] += count
		}
	}
	return rate(a, counts)
}

func rate(a chart.Axis, counts []int64) (points []chart.Point) {
	for i, n := range counts {
		points = append(points, chart.Point{At: middle(a, i), Value: float64(n) / plotStep.Seconds()})
	}
	return points
}

// waitPoints are the median and the longest wait of each step in which there was one, in ms.
func waitPoints(a chart.Axis, list []latency.Wait) (median, worst []chart.Point) {
	n, of := steps(a)
	byStep := make([][]latency.Wait, n)
	for _, w := range list {
		if i := of(w.At); i >= 0 {
			byStep[i] = append(byStep[i], w)
		}
	}
	for i, some := range byStep {
		if m := latency.Quantile(some, 0.5); m != nil {
			median = append(median, chart.Point{At: middle(a, i), Value: *m})
			worst = append(worst, chart.Point{At: middle(a, i), Value: *latency.Quantile(some, 1)})
		}
	}
	return median, worst
}
