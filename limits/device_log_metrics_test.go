package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// gathered is the value of each series in reg, of histograms how often they were told.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if h := m.GetHistogram(); h != nil {
				values[name] = float64(h.GetSampleCount())
			} else {
				values[name] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// Each attempt is counted once with what became of it; every series begins at zero.
func TestMetricsOfALog(t *testing.T) {
	m, reg := &tables{}, prometheus.NewPedanticRegistry()
	log := NewDeviceLog(m, 8)
	if err := log.Measure(reg); err != nil {
		t.Fatal(err)
	}
	if err := log.Measure(reg); err == nil {
		t.Error("registered twice")
	}
	l, err := New(nil, []Rule{deviceDay(1), deviceMinute(1)}, CountDevicesIn(log))
	if err != nil {
		t.Fatal(err)
	}
	const reads, writes, full = "push_device_limit_reads_total", "push_device_limit_writes_total", "push_device_limit_full_total"
	before := map[string]float64{reads + " ok": 0, reads + " failed": 0, writes + " ok": 0, writes + " failed": 0, full: 0,
		"push_device_limit_read_duration_seconds": 0, "push_device_limit_write_duration_seconds": 0}
	check := func(why string, changes map[string]float64) {
		t.Helper()
		now := gathered(t, reg)
		for name, n := range changes {
			before[name] += n
		}
		if fmt.Sprint(now) != fmt.Sprint(before) {
			t.Errorf("%s: %v, want %v", why, now, before)
		}
	}
	check("before the first", nil)

	decide(t, l, to("a", "news", 0, 1))
	check("two dates and one hour are read, a row of each table is written", map[string]float64{
		reads + " ok": 3, writes + " ok": 2, "push_device_limit_read_duration_seconds": 3, "push_device_limit_write_duration_seconds": 2})

	m.failing = "INSERT INTO device_limit_times"
	if err := l.Decide(t.Context(), []*Request{to("b", "chat", 0, 1)}); !errors.Is(err, errTablesAway) {
		t.Error(err)
	}
	now := gathered(t, reg)
	if now[writes+" failed"] != 1 || now["push_device_limit_write_duration_seconds"] != now[writes+" ok"]+1 {
		t.Errorf("a write that failed: %v", now)
	}
	m.failing, before = "SELECT", now
	if err := l.Decide(t.Context(), []*Request{to("c", "call", 0, 1)}); !errors.Is(err, errTablesAway) {
		t.Error(err)
	}
	check("a read that failed", map[string]float64{reads + " failed": 1, "push_device_limit_read_duration_seconds": 1})

	ended, end := context.WithCancel(t.Context())
	m.pause = func(string) { end() }
	if err := l.Decide(ended, []*Request{to("d", "call", 0, 1)}); err == nil {
		t.Error("decided without an answer")
	}
	check("a worker that ends says nothing of the server", nil)
}

// What is full is counted with each batch that finds it so, and is refused.
func TestAFullLogIsCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	log := NewDeviceLog(&tables{}, 8)
	if err := log.Measure(reg); err != nil {
		t.Fatal(err)
	}
	l, err := New(nil, []Rule{deviceDay(1)}, CountDevicesIn(log))
	if err != nil {
		t.Fatal(err)
	}
	reqs := make([]*Request, maxEvents)
	for i := range reqs {
		reqs[i] = to(fmt.Sprint(i), fmt.Sprint(i), 0, 1)
	}
	var got []float64
	for _, batch := range [][]*Request{reqs[:maxEvents-1], reqs[maxEvents-1:], {to("over", "over", 0, 1), to("other", "over", 0, 2)}} {
		decide(t, l, batch...)
		got = append(got, gathered(t, reg)["push_device_limit_full_total"])
	}
	if want := []float64{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("%v full, want %v", got, want)
	}
}
