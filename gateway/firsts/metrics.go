package firsts

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	lookedDesc = prometheus.NewDesc("push_gateway_firsts_looked_total", "Messages with ids of their senders that were looked for among those accepted before: found, none, late (Redis was slow), unasked (it is away).", []string{"result"}, nil)
	keptDesc   = prometheus.NewDesc("push_gateway_firsts_kept_total", "Accepted messages whose first records were to be kept in Redis: kept, lost (a repeat is written again).", []string{"result"}, nil)
)

// counts are what became of names that were looked for, and of values.
type counts struct {
	found, none, late, unasked atomic.Int64
	kept, lost                 atomic.Int64
}

// Describe implements prometheus.Collector.
func (s *Store) Describe(to chan<- *prometheus.Desc) {
	to <- lookedDesc
	to <- keptDesc
}

// Collect implements prometheus.Collector. What Redis answers too late counts as late and
// as what it was.
func (s *Store) Collect(to chan<- prometheus.Metric) {
	for _, c := range []struct {
		desc   *prometheus.Desc
		result string
		n      *atomic.Int64
	}{{lookedDesc, "found", &s.counts.found}, {lookedDesc, "none", &s.counts.none}, {lookedDesc, "late", &s.counts.late}, {lookedDesc, "unasked", &s.counts.unasked},
		{keptDesc, "kept", &s.counts.kept}, {keptDesc, "lost", &s.counts.lost}} {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.n.Load()), c.result)
	}
}
