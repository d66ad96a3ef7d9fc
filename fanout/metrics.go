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
	m := &Metrics{
		jobs:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fanout_jobs_total", Help: "Jobs: expanded to chunks, or cancelled before."}, []string{"result"}),
		chunks:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fanout_chunks_total", Help: "Chunks: ended, ended_before (a repeat), held (their message is paused), over_limit (their sender may reach no more receivers today), limit_unknown (Redis does not say how many those are), given_back (to another process), cancelled."}, []string{"lane", "result"}),
		emitted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fanout_records_total", Help: "Records produced for receivers, repeats included."}, []string{"lane"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fanout_skipped_total", Help: "Members of audiences who got no record, of chunks that have ended."}, []string{"lane", "reason"}),
		waits:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fanout_waits_total", Help: "Seconds that chunks waited for the workers of their lane to catch up."}, []string{"lane"}),
		failed:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fanout_failures_total", Help: "Records of fan-outs whose work failed and is repeated, by topic."}, []string{"topic"}),
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
