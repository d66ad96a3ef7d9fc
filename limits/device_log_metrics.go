package limits

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// logMetrics count what a log asks of its tables. All methods are safe for
// concurrent use, and do nothing on nil.
type logMetrics struct {
	reads, writes logQueries
	full          prometheus.Counter
}

// logQueries are the queries of one kind.
type logQueries struct {
	ok, failed prometheus.Counter
	took       prometheus.Histogram
}

// Measure registers the log's metrics and counts from then on. Call it before the
// log is used, once for each registry.
func (d *DeviceLog) Measure(reg prometheus.Registerer) error {
	m := &logMetrics{full: prometheus.NewCounter(prometheus.CounterOpts{Name: "push_device_limit_full_total",
		Help: "Devices that were full when a batch had been decided: what is not critical is refused there (limited:state_full) until the day or the hour is over."})}
	all := []prometheus.Collector{m.full}
	for _, kind := range []struct {
		of         *logQueries
		name, what string
	}{{&m.reads, "read", "Reads of what a device got"}, {&m.writes, "write", "Rows of what a device got"}} {
		results := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_device_limit_" + kind.name + "s_total",
			Help: kind.what + ", by the result of the attempt: ok, failed. What failed is tried again with its batch."}, []string{"result"})
		took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "push_device_limit_" + kind.name + "_duration_seconds",
			Help: "Time of one attempt to " + kind.name + " what a device got, without waiting for a place in limits.devices.concurrency.", Buckets: logBuckets})
		// Both results are there from the start, so that rates begin at zero.
		*kind.of = logQueries{ok: results.WithLabelValues("ok"), failed: results.WithLabelValues("failed"), took: took}
		all = append(all, results, took)
	}
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	d.metrics = m
	return nil
}

// logBuckets span a healthy read and the time-out of 5 s.
var logBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

func (m *logMetrics) read(ctx context.Context, began time.Time, err error) {
	if m != nil {
		m.reads.observe(ctx, began, err)
	}
}

func (m *logMetrics) wrote(ctx context.Context, began time.Time, err error) {
	if m != nil {
		m.writes.observe(ctx, began, err)
	}
}

func (q *logQueries) observe(ctx context.Context, began time.Time, err error) {
	switch {
	case err == nil:
		q.ok.Inc()
	case ctx.Err() != nil:
		return // given up, as another query failed or the worker ends: it says nothing of the server
	default:
		q.failed.Inc()
	}
	q.took.Observe(time.Since(began).Seconds())
}

// decided counts the devices of a batch that are full.
func (m *logMetrics) decided(logs deviceLogs) {
	if m == nil {
		return
	}
	for _, l := range logs {
		if l.full() {
			m.full.Inc()
		}
	}
}
