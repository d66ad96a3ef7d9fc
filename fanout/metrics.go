package fanout

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what fan-outs count. It is safe for concurrent use.
type Metrics struct {
	jobs    *prometheus.CounterVec
	chunks  *prometheus.CounterVec
	emitted *prometheus.CounterVec
	skipped *prometheus.CounterVec
	waits   *prometheus.CounterVec
	failed  *prometheus.CounterVec
	broken  prometheus.Counter
}

// NewMetrics makes and registers them; nil = they are not registered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fanout_" + name, Help: help}, labels)
	}
	m := &Metrics{
		jobs:    counter("jobs_total", "Jobs: expanded to chunks, or cancelled before.", "result"),
		chunks:  counter("chunks_total", "Chunks: ended, ended_before (a repeat), held (their message is paused), over_limit (their sender may reach no more receivers today), limit_unknown (Redis does not say how many those are), given_back (to another process), cancelled.", "lane", "result"),
		emitted: counter("records_total", "Records produced for receivers, repeats included.", "lane"),
		skipped: counter("skipped_total", "Members of audiences who got no record, of chunks that have ended.", "lane", "reason"),
		waits:   counter("waits_total", "Seconds that chunks waited for the workers of their lane to catch up.", "lane"),
		failed:  counter("failures_total", "Records of fan-outs whose work failed and is repeated, by topic.", "topic"),
		broken:  prometheus.NewCounter(prometheus.CounterOpts{Name: "push_fanout_broken_total", Help: "Jobs and chunks that cannot be read. Must be 0."}),
	}
	if reg != nil {
		reg.MustRegister(m.jobs, m.chunks, m.emitted, m.skipped, m.waits, m.failed, m.broken)
	}
	return m
}

func (m *Metrics) job(result string)         { m.jobs.WithLabelValues(result).Inc() }
func (m *Metrics) chunk(lane, result string) { m.chunks.WithLabelValues(lane, result).Inc() }

// Failed counts a record whose work failed.
func (m *Metrics) Failed(topic string) { m.failed.WithLabelValues(topic).Inc() }
