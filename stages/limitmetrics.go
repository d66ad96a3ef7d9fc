package stages

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
)

// LimitMetrics count what the limits decide. All methods are safe for concurrent use,
// and do nothing on nil.
type LimitMetrics struct {
	checks   *prometheus.CounterVec   // by dimension, action, priority
	exceeded *prometheus.CounterVec   // by dimension, rule
	overage  *prometheus.HistogramVec // by dimension
}

// NewLimitMetrics registers them.
func NewLimitMetrics(reg prometheus.Registerer) *LimitMetrics {
	m := &LimitMetrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_rate_limit_checks_total",
			Help: "Notifications, and for dimension device_type deliveries, that limits were asked about. dimension is that of the rule that did not allow, none = all allow. action: allowed, bypassed (critical), uncounted (critical, and what would have counted it could not be read), deferred, dropped."},
			[]string{"dimension", "action", "priority"}),
		exceeded: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_rate_limit_exceeded_total",
			Help: "Those that a rule did not allow."}, []string{"dimension", "rule"}),
		overage: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "push_rate_limit_overage",
			Help:    "Of what a rule did not allow, by how much it would have exceeded the limit: 1 = nothing more was allowed. Of senders, how many tokens it would owe.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 1000, 10_000}}, []string{"dimension"}),
	}
	reg.MustRegister(m.checks, m.exceeded, m.overage)
	for _, d := range []limits.Dimension{limits.Dimension(limits.PerUser), limits.Dimension(limits.PerUserType), limits.Dimension(limits.PerDeviceType), limits.Dimension(limits.PerSegment), limits.DimensionSender} {
		m.overage.WithLabelValues(string(d))
	}
	m.decided(&asking{}, nil)                                              // series of zero, so that rate() sees the first one
	for _, d := range []limits.Per{limits.PerUser, limits.PerDeviceType} { // no rule's name, so no configuration has it
		m.exceeded.WithLabelValues(string(limits.Dimension(d)), limits.StateFull)
	}
	return m
}

// noDimension is the label of what every rule allows.
const noDimension = "none"

// decided counts the answers to what was asked: after an error those of the senders'
// limits alone.
func (m *LimitMetrics) decided(a *asking, err error) {
	if m == nil {
		return
	}
	var allowed [push.Critical + 1]int
	for _, r := range a.reqs {
		switch {
		case bySender(r) || err == nil && !r.Allowed:
			m.refused(r)
			continue
		case err != nil || r.Exempt:
			continue
		}
		allowed[r.Priority]++
		for i := range r.Devices {
			if d := &r.Devices[i]; d.Refused {
				m.count(limits.Dimension(limits.PerDeviceType), dropped, d.Rule, r.Priority, int(d.Current-d.Limit))
			}
		}
	}
	if err != nil {
		return
	}
	for p := push.Bulk; p < push.Critical; p++ {
		m.checks.WithLabelValues(noDimension, "allowed", p.String()).Add(float64(allowed[p]))
	}
	m.checks.WithLabelValues(noDimension, "uncounted", push.Critical.String()).Add(float64(a.uncounted))
	m.checks.WithLabelValues(noDimension, "bypassed", push.Critical.String()).Add(float64(a.bypassed + allowed[push.Critical]))
}

// What becomes of what a rule does not allow, as a label.
const dropped, deferred = "dropped", "deferred"

// refused counts what a rule did not allow.
func (m *LimitMetrics) refused(r *limits.Request) {
	action := dropped
	if r.Deferred {
		action = deferred
	}
	m.count(r.Dimension, action, r.Rule, r.Priority, r.Current-r.Limit)
}

// count counts what would have been the next after what stands above a limit; below 0,
// the limit does not hold at a later time, at which something waits.
func (m *LimitMetrics) count(dimension limits.Dimension, action, rule string, priority uint8, above int) {
	m.checks.WithLabelValues(string(dimension), action, push.Priority(priority).String()).Inc()
	m.exceeded.WithLabelValues(string(dimension), rule).Inc()
	m.overage.WithLabelValues(string(dimension)).Observe(float64(max(above, 0) + 1))
}
