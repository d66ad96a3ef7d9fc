package watch

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
)

// Metrics show what the watchdogs of a worker's lanes saw. All methods are safe
// for concurrent use.
type Metrics struct {
	stalled    *prometheus.GaugeVec // lane, reason
	standstill *prometheus.GaugeVec // lane
	reasons    *prometheus.GaugeVec // lane, topic, partition, reason

	mu     sync.Mutex
	stalls map[string]map[string]float64 // by lane: seconds by name, of all stalls that there ever were; guarded by mu
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		reg.MustRegister(v)
		return v
	}
	return &Metrics{
		stalled:    gauge("push_stall_seconds", "How long something has waited for a reason: a store away, a route stopped. 0 = it does not.", "lane", "reason"),
		standstill: gauge("push_standstill_seconds", "The longest that a partition with lag has not moved without a reason. At 60 the worker ends itself.", "lane"),
		reasons:    gauge("push_partition_stall_seconds", "How long a partition with lag has stood still for a reason; no series where there is none.", "lane", "topic", "partition", "reason"),
		stalls:     make(map[string]map[string]float64),
	}
}

// Lane makes the series of a lane that are there before its first look.
func (m *Metrics) Lane(lane string) { m.standstill.WithLabelValues(lane) }

// Saw sets what the watchdog of one lane saw. A stall that is over keeps its
// series, at 0. A partition that moves on, or is another worker's by now, has none.
func (m *Metrics) Saw(lane string, now time.Time, stalls []gates.Stall, f Finding) {
	m.standstill.WithLabelValues(lane).Set(f.Quiet.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	seconds := m.stalls[lane]
	if seconds == nil {
		seconds = make(map[string]float64)
		m.stalls[lane] = seconds
	}
	for name := range seconds {
		seconds[name] = 0
	}
	for _, s := range stalls {
		seconds[s.Name] = max(seconds[s.Name], now.Sub(s.Since).Seconds())
	}
	for name, s := range seconds {
		m.stalled.WithLabelValues(lane, name).Set(s)
	}
	m.reasons.DeletePartialMatch(prometheus.Labels{"lane": lane})
	for _, r := range f.Excuses {
		m.reasons.WithLabelValues(lane, r.Partition.Topic, strconv.Itoa(int(r.Partition.ID)), r.Name).Set(now.Sub(r.Since).Seconds())
	}
}
