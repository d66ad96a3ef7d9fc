package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/providers/h2"
)

// poolMetrics are the metrics of each route's connections. They are read from the
// pools at each scrape, once per route, and cost the hot path nothing.
type poolMetrics struct{ routes routes }

// poolMetric is one figure of a pool.
type poolMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*h2.Stats) int64
}

func poolGauge(name, help string, of func(*h2.Stats) int64) poolMetric {
	return poolMetric{prometheus.NewDesc(name, help, []string{"route"}, nil), prometheus.GaugeValue, of}
}

func poolCounter(name, help string, of func(*h2.Stats) int64) poolMetric {
	return poolMetric{prometheus.NewDesc(name, help, []string{"route"}, nil), prometheus.CounterValue, of}
}

// figures are all figures that are exported about a pool.
func (poolMetrics) figures() []poolMetric {
	return []poolMetric{
		poolGauge("push_provider_connections", "Open connections.", func(s *h2.Stats) int64 { return s.Connections }),
		poolGauge("push_provider_streams", "Requests in flight on the connections.", func(s *h2.Stats) int64 { return s.InFlight }),
		poolGauge("push_provider_streams_granted", "Requests that the open connections may have in flight: limited by the server and by send.<platform>.streams, and lower while the server asks us to slow down.", func(s *h2.Stats) int64 { return s.Granted }),
		poolGauge("push_provider_waiting", "Requests waiting for a stream.", func(s *h2.Stats) int64 { return int64(s.Waiting) }),
		poolCounter("push_provider_dials_total", "Connection attempts, including failed ones.", func(s *h2.Stats) int64 { return s.Dials }),
		poolCounter("push_provider_dial_failures_total", "Connections that could not be opened.", func(s *h2.Stats) int64 { return s.DialFailures }),
		poolCounter("push_provider_goaways_total", "GOAWAY frames received.", func(s *h2.Stats) int64 { return s.GoAways }),
		poolCounter("push_provider_resends_total", "Requests that the server did not accept and that were sent again at once.", func(s *h2.Stats) int64 { return s.Resent }),
		poolCounter("push_provider_slowdowns_total", "Times the provider made the whole pool slow down.", func(s *h2.Stats) int64 { return s.Calms }),
	}
}

// Describe implements prometheus.Collector.
func (m poolMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range m.figures() {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (m poolMetrics) Collect(ch chan<- prometheus.Metric) {
	figures := m.figures()
	for route := range m.routes {
		s, ok := m.routes.stats(route)
		if !ok {
			continue
		}
		for _, f := range figures {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(f.of(&s)), route.String())
		}
	}
}
