package status

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of a store. Every label is there from the start, so that
// rates begin at zero.
type metrics struct {
	writes         [failures]prometheus.Counter
	reads          [failures]prometheus.Counter
	batchRows      prometheus.Histogram
	duration       prometheus.Histogram
	readDuration   prometheus.Histogram
	unacknowledged prometheus.Gauge
	concurrency    prometheus.Gauge
	rebuilds       prometheus.Counter
	readIDs        prometheus.Counter

	all []prometheus.Collector
}

func newMetrics() *metrics {
	m := &metrics{
		batchRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "push_status_batch_rows", Help: "Rows per batch written to the status store.",
			Buckets: []float64{1, 3, 10, 30, 60, 100, 150, 200, 500},
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "push_status_write_duration_seconds", Help: "Time of one attempt to write a batch.",
			Buckets: durationBuckets,
		}),
		readDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "push_status_read_duration_seconds", Help: "Time of one attempt at a confirm read.",
			Buckets: durationBuckets,
		}),
		unacknowledged: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "push_status_unacknowledged_rows", Help: "Rows handed to the status store and not yet durable.",
		}),
		concurrency: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "push_status_concurrency", Help: "Full batches that may be in flight at once, or smaller ones of the same total size; falls when the store is overloaded.",
		}),
		rebuilds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "push_status_sessions_rebuilt_total", Help: "Times the Cassandra session was replaced because it did not heal.",
		}),
		readIDs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "push_status_read_ids_total", Help: "Ids that were answered by confirm reads.",
		}),
	}
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "push_status_writes_total", Help: "Status rows by the result of an attempt to write them; all results but ok are tried again.",
	}, []string{"result"})
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "push_status_reads_total", Help: "Confirm reads by the result of an attempt; all results but ok are tried again.",
	}, []string{"result"})
	for f := range failures {
		m.writes[f] = writes.WithLabelValues(f.String())
		m.reads[f] = reads.WithLabelValues(f.String())
	}
	m.all = []prometheus.Collector{writes, reads, m.batchRows, m.duration, m.readDuration, m.unacknowledged, m.concurrency, m.rebuilds, m.readIDs}
	return m
}

// register makes the metrics visible in reg, which may be nil: all or none.
func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	for i, c := range m.all {
		if err := reg.Register(c); err != nil {
			for _, c := range m.all[:i] {
				reg.Unregister(c)
			}
			return err
		}
	}
	return nil
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	for _, c := range m.all {
		reg.Unregister(c)
	}
}

// durationBuckets span a healthy local write and the time-out of 5 s.
var durationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

func (m *metrics) observe(f failure, rows int, took time.Duration) {
	m.writes[f].Add(float64(rows))
	m.batchRows.Observe(float64(rows))
	m.duration.Observe(took.Seconds())
}

func (m *metrics) observeRead(f failure, took time.Duration) {
	m.reads[f].Inc()
	m.readDuration.Observe(took.Seconds())
}
