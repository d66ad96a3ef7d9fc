package segments

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the figures of a Watcher.
type Metrics struct {
	loaded, unchanged, refused, failed prometheus.Counter
	reasons                            *prometheus.CounterVec
	version, bytes                     prometheus.Gauge
	loadedAt, currentAt                prometheus.Gauge
	users                              *prometheus.GaugeVec
}

// NewMetrics registers the figures with reg, or nowhere when reg is nil. It
// panics when they are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	polls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "push_segments_polls_total",
		Help: "Times the source of segments was asked, by result: loaded, unchanged, refused (the newest file must not be used, the one before stays), failed (it could not be read).",
	}, []string{"result"})
	m := &Metrics{
		loaded: polls.WithLabelValues("loaded"), unchanged: polls.WithLabelValues("unchanged"),
		refused: polls.WithLabelValues("refused"), failed: polls.WithLabelValues("failed"),
		reasons: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "push_segments_refused_total",
			Help: "Segment files refused, by reason; each file counts once.",
		}, []string{"reason"}),
		version:   gauge("push_segments_version", "Version of the segments in use; 0 = none loaded yet."),
		bytes:     gauge("push_segments_bytes", "Memory of the segments in use, bytes; twice that while a new version is loaded."),
		loadedAt:  gauge("push_segments_loaded_timestamp_seconds", "When the segments in use were loaded."),
		currentAt: gauge("push_segments_current_timestamp_seconds", "When the segments in use were last known to be the newest ones."),
		users: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "push_segments_users", Help: "Users in a segment, of the version in use.",
		}, []string{"group", "segment"}),
	}
	for _, r := range reasons {
		m.reasons.WithLabelValues(string(r))
	}
	if reg != nil {
		reg.MustRegister(polls, m.reasons, m.version, m.bytes, m.loadedAt, m.currentAt, m.users)
	}
	return m
}

// use shows the figures of the set in use.
func (m *Metrics) use(s *Set) {
	m.version.Set(float64(s.Version()))
	m.bytes.Set(float64(s.Bytes()))
	m.users.Reset()
	for _, g := range s.manifest.Groups {
		for _, seg := range g.Segments {
			m.users.WithLabelValues(g.Name, seg.Name).Set(float64(seg.Users))
		}
	}
}
