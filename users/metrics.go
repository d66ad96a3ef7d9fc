package users

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the figures of registries and of feedback. No label holds a
// user, a token or a hash of one.
type Metrics struct {
	applied, broken                 prometheus.Counter
	ready, lag                      prometheus.Gauge
	quarantined                     prometheus.Gauge
	builds, conflicts, settled      prometheus.Counter
	repaired                        prometheus.Counter
	errors                          prometheus.Counter
	removed, newer, unknown, unread prometheus.Counter // of feedback
	waiting                         prometheus.Gauge
	feedbackErrors                  prometheus.Counter
}

// NewMetrics registers the figures with reg, or nowhere when reg is nil. It
// panics when they are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	feedback := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "push_feedback_records_total",
		Help: "Dead-token reports read, by what became of them: removed, newer (registered again since), unknown (no such device), unreadable.",
	}, []string{"result"})
	m := &Metrics{
		applied:     counter("push_registry_applied_total", "Records of push.users applied, once per shard that they change."),
		broken:      counter("push_registry_broken_total", "Records of push.users that cannot be read, each time they are."),
		ready:       gauge("push_registry_shards_ready", "User shards that are complete, of 256."),
		lag:         gauge("push_registry_lag_records", "Offsets of push.users still to be read, all partitions; +Inf while it cannot be followed."),
		quarantined: gauge("push_registry_quarantined_parts", "Parts of users whose latest record in push.users cannot be read."),
		repaired:    counter("push_registry_repaired_total", "Values in Redis that could not be read and were rebuilt from push.users."),

		builds:    counter("push_registry_builds_total", "Times a user shard was begun anew."),
		conflicts: counter("push_registry_conflicts_total", "Writes refused because another registry wrote first, or writes were lost."),
		settled:   counter("push_registry_settled_total", "Records appended to push.users to settle who owns a token, and what holds of a device."),
		errors:    counter("push_registry_errors_total", "Times that following push.users failed and was begun again."),
		removed:   feedback.WithLabelValues("removed"),
		newer:     feedback.WithLabelValues("newer"),
		unknown:   feedback.WithLabelValues("unknown"),
		unread:    feedback.WithLabelValues("unreadable"),

		waiting:        gauge("push_feedback_waiting", "Removals that wait because of the limit a minute."),
		feedbackErrors: counter("push_feedback_errors_total", "Times that a batch of dead-token reports failed and was tried again."),
	}
	if reg != nil {
		reg.MustRegister(m.applied, m.broken, m.ready, m.lag, m.quarantined, m.repaired, m.builds, m.conflicts, m.settled, m.errors,
			feedback, m.waiting, m.feedbackErrors)
	}
	return m
}
