package status

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func gauge(t *testing.T, g prometheus.Gauge) float64 {
	t.Helper()
	return testutil.ToFloat64(g)
}

func TestMetricsRegisterAllOrNothing(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics()
	if err := m.register(reg); err != nil {
		t.Fatal(err)
	}
	if err := newMetrics().register(reg); err == nil {
		t.Error("a second store took the first one's names")
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	count, err := testutil.GatherAndCount(reg, "push_status_writes_total")
	if err != nil || count != int(failures) {
		t.Errorf("push_status_writes_total has %d results at the start, want all %d (%v)", count, failures, err)
	}
	m.unregister(reg)
	if err := newMetrics().register(reg); err != nil {
		t.Errorf("after the first store was closed: %v", err)
	}
}

// An attempt counts in every metric that it belongs to, and in no other.
func TestAttemptsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics()
	if err := m.register(reg); err != nil {
		t.Fatal(err)
	}
	m.observe(overloaded, 7, 20*time.Millisecond)
	m.observeRead(timedOut, 3*time.Second)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.Metric {
			name := f.GetName()
			for _, label := range metric.Label {
				name += " " + label.GetValue()
			}
			if v := metric.GetCounter().GetValue() + metric.GetHistogram().GetSampleSum(); v != 0 {
				sums[name] = v
			}
		}
	}
	want := map[string]float64{"push_status_writes_total overloaded": 7, "push_status_batch_rows": 7,
		"push_status_write_duration_seconds": 0.02, "push_status_reads_total timeout": 1, "push_status_read_duration_seconds": 3}
	if !maps.Equal(sums, want) {
		t.Errorf("%v, want %v", sums, want)
	}
}
