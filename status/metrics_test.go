package status

import (
	"testing"

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
