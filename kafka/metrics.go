package kafka

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of all Sources and Producers of a process. Labels are topics,
// partitions and groups, never keys or ids. They are safe for concurrent use.
type Metrics struct {
	lag           *prometheus.GaugeVec     // topic, partition
	consumed      *prometheus.CounterVec   // topic
	commitSeconds *prometheus.HistogramVec // group: one commit is for all topics of a Source
	commitsFailed *prometheus.CounterVec   // group
	rewinds       *prometheus.CounterVec   // topic
	assigned      *prometheus.GaugeVec     // topic
	paused        *prometheus.GaugeVec     // topic
	stopped       *prometheus.GaugeVec     // topic
	gap           *prometheus.CounterVec   // topic
	fetchErrors   *prometheus.CounterVec   // topic
	open          *prometheus.GaugeVec     // topic
	rebalances    *prometheus.CounterVec   // topic, kind
	drainMissed   *prometheus.CounterVec   // topic
	produced      *prometheus.CounterVec   // topic
}

// NewMetrics returns the metrics, registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		lag:           prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_consumer_lag", Help: "Records between the committed offset and the end of the partition."}, []string{"topic", "partition"}),
		consumed:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_consumed_messages_total", Help: "Records handed to the pipeline, copies after a rebalance included."}, []string{"topic"}),
		commitSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "push_offset_commit_duration_seconds", Help: "Time of one synchronous offset commit.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 9), NativeHistogramBucketFactor: 1.1}, []string{"group"}),
		commitsFailed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_offset_commit_failures_total", Help: "Offset commits that the coordinator did not accept; they are repeated."}, []string{"group"}),
		rewinds:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_offset_commit_rewinds_total", Help: "Commits that would have moved an offset back and were not sent; anything but 0 is a bug or a truncated log."}, []string{"topic"}),
		assigned:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_consumer_assigned_partitions", Help: "Partitions this worker owns."}, []string{"topic"}),
		paused:        prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_consumer_paused_partitions", Help: "Partitions not fetched for now: window full, or records not due."}, []string{"topic"}),
		stopped:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_consumer_stopped_partitions", Help: "Partitions that cannot go on without an operator: offset out of range, unreadable record."}, []string{"topic"}),
		gap:           prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_offset_gap_total", Help: "Offsets between where a stopped partition stands and what the log still has: records that were deleted, or a log that was cut short, before they were read."}, []string{"topic"}),
		fetchErrors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_fetch_errors_total", Help: "Errors that fetches came back with and that may pass: they are tried again."}, []string{"topic"}),
		open:          prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_consumer_open_records", Help: "Records polled and not yet below the watermark."}, []string{"topic"}),
		rebalances:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_consumer_partition_moves_total", Help: "Partitions assigned, revoked and lost."}, []string{"topic", "kind"}),
		drainMissed:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_drain_missed_records_total", Help: "Records still open when their partition had to be given back: the next owner confirms them."}, []string{"topic"}),
		produced:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_produced_records_total", Help: "Records handed over and acknowledged by all in-sync replicas."}, []string{"topic"}),
	}
	if reg != nil {
		reg.MustRegister(m.lag, m.consumed, m.commitSeconds, m.commitsFailed, m.rewinds, m.assigned,
			m.paused, m.stopped, m.gap, m.fetchErrors, m.open, m.rebalances, m.drainMissed, m.produced)
	}
	return m
}

// topicMetrics are one topic's children, made at start so that rates begin at
// zero.
type topicMetrics struct {
	lag                       *prometheus.GaugeVec
	topic                     string
	consumed, rewinds         prometheus.Counter
	assigned, paused          prometheus.Gauge
	stopped, open             prometheus.Gauge
	moveAssigned, moveRevoked prometheus.Counter
	moveLost, drainMissed     prometheus.Counter
	gap, fetchErrors          prometheus.Counter
}

func (m *Metrics) forTopic(topic string) *topicMetrics {
	return &topicMetrics{
		lag: m.lag, topic: topic,
		consumed:     m.consumed.WithLabelValues(topic),
		rewinds:      m.rewinds.WithLabelValues(topic),
		assigned:     m.assigned.WithLabelValues(topic),
		paused:       m.paused.WithLabelValues(topic),
		stopped:      m.stopped.WithLabelValues(topic),
		gap:          m.gap.WithLabelValues(topic),
		fetchErrors:  m.fetchErrors.WithLabelValues(topic),
		open:         m.open.WithLabelValues(topic),
		moveAssigned: m.rebalances.WithLabelValues(topic, "assigned"),
		moveRevoked:  m.rebalances.WithLabelValues(topic, "revoked"),
		moveLost:     m.rebalances.WithLabelValues(topic, "lost"),
		drainMissed:  m.drainMissed.WithLabelValues(topic),
	}
}

func (m *topicMetrics) setLag(partition int32, lag int64) {
	m.lag.WithLabelValues(m.topic, strconv.Itoa(int(partition))).Set(float64(lag))
}

func (m *topicMetrics) forget(partition int32) {
	m.lag.DeleteLabelValues(m.topic, strconv.Itoa(int(partition)))
}

// groupMetrics are one group's children.
type groupMetrics struct {
	commitSeconds prometheus.Observer
	commitsFailed prometheus.Counter
}

func (m *Metrics) forGroup(group string) *groupMetrics {
	return &groupMetrics{commitSeconds: m.commitSeconds.WithLabelValues(group), commitsFailed: m.commitsFailed.WithLabelValues(group)}
}

func (m *groupMetrics) commit(d time.Duration) { m.commitSeconds.Observe(d.Seconds()) }
