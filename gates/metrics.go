package gates

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
)

// GateMetrics are the metrics of gates.
type Metrics struct {
	paused *prometheus.GaugeVec   // route
	pauses *prometheus.CounterVec // route, reason
	wards  *prometheus.GaugeVec   // route
}

// NewGateMetrics registers them. It panics if they are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_route_paused", Help: "1 while a route is paused or only probed."}, []string{"route"}),
		pauses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_route_pauses_total", Help: "Times a route was paused, including failed probes."}, []string{"route", "reason"}),
		wards:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_quarantined_origins", Help: "Campaigns and senders that are stopped on a route, because nearly all their tokens are bad."}, []string{"route"}),
	}
	reg.MustRegister(m.paused, m.pauses, m.wards)
	return m
}

// gateMetrics are the series of one gate.
type gateMetrics struct {
	paused prometheus.Gauge
	pauses map[PauseReason]prometheus.Counter

	quarantined prometheus.Gauge
}

func (m *Metrics) of(r push.Route) gateMetrics {
	g := gateMetrics{paused: m.paused.WithLabelValues(r.String()), pauses: make(map[PauseReason]prometheus.Counter), quarantined: m.wards.WithLabelValues(r.String())}
	for _, why := range []PauseReason{PauseAsked, PauseHalted, PauseErrors, PauseInARow, PauseFleet, PauseTold} {
		g.pauses[why] = m.pauses.WithLabelValues(r.String(), string(why))
	}
	return g
}
