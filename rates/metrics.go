package rates

import "github.com/prometheus/client_golang/prometheus"

// Change is a change of a rate that this worker has made. From and To are sends a
// second of the whole fleet, 0 = no limit.
type Change struct {
	Rate     string
	From, To float64
	Cause    Cause
}

// Metrics are the metrics of rates.
type Metrics struct {
	rate    *prometheus.GaugeVec   // rate
	changes *prometheus.CounterVec // rate, cause
}

// NewMetrics registers them. It panics if they are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		rate:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_route_rate", Help: "Sends a second that the fleet may make to what a provider counts, as this worker knows it; 0 = no limit."}, []string{"rate"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_route_rate_changes_total", Help: "Changes of a rate that this worker made for the fleet."}, []string{"rate", "cause"}),
	}
	reg.MustRegister(m.rate, m.changes)
	return m
}

// rateMetrics are the series of one rate.
type rateMetrics struct {
	name    string
	rate    prometheus.Gauge
	changes map[Cause]prometheus.Counter
}

func (m *Metrics) of(name string) rateMetrics {
	r := rateMetrics{name: name, rate: m.rate.WithLabelValues(name), changes: make(map[Cause]prometheus.Counter)}
	for _, c := range []Cause{CauseQuota, CauseFailing, CauseRound, CauseGrowth, CauseLost, CauseAnnounced} {
		r.changes[c] = m.changes.WithLabelValues(name, string(c))
	}
	return r
}
