package webhooks

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what deliveries count. It is safe for concurrent use.
type Metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	dead    *prometheus.CounterVec
	rests   *prometheus.GaugeVec
	failed  *prometheus.CounterVec
}

// results are those of calls.
var results = [...]string{"delivered", "refused", "throttled", "failed", "unreachable"}

// NewMetrics makes and registers them, with the series of these senders at 0.
func NewMetrics(reg prometheus.Registerer, senders []string) *Metrics {
	m := &Metrics{
		calls:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_webhook_calls_total", Help: "Calls to endpoints: delivered (2xx), refused (3xx, 4xx), throttled (429, 503), failed (5xx), unreachable (no answer)."}, []string{"sender", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "push_webhook_call_seconds", Help: "How long calls to endpoints took.", Buckets: []float64{.01, .05, .1, .5, 1, 5, 15, 60}}, []string{"sender"}),
		dead:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_webhook_dead_letters_total", Help: "Events that were not delivered and are in push.webhooks-dlq."}, []string{"sender", "reason"}),
		rests:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_webhook_resting", Help: "1 while this process leaves an endpoint alone, because it failed, asked for it, or wants no more."}, []string{"sender"}),
		failed:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_webhook_failures_total", Help: "Events whose delivery failed here, as with a dead letter that Kafka does not take, and is repeated."}, []string{"sender"}),
	}
	for _, sender := range senders {
		for _, result := range results {
			m.calls.WithLabelValues(sender, result)
		}
		for _, why := range Reasons() {
			m.dead.WithLabelValues(sender, string(why))
		}
		m.rests.WithLabelValues(sender)
		m.failed.WithLabelValues(sender)
	}
	reg.MustRegister(m.calls, m.seconds, m.dead, m.rests, m.failed)
	return m
}

// Failed counts an event whose delivery failed here.
func (m *Metrics) Failed(sender string) { m.failed.WithLabelValues(sender).Inc() }

func (m *Metrics) called(sender string, a *Answer, took time.Duration) {
	result := "unreachable"
	switch {
	case a.Delivered():
		result = "delivered"
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable:
		result = "throttled"
	case a.Status >= 500:
		result = "failed"
	case a.Status > 0:
		result = "refused"
	}
	m.calls.WithLabelValues(sender, result).Inc()
	m.seconds.WithLabelValues(sender).Observe(took.Seconds())
}

func (m *Metrics) buried(sender string, why Reason) {
	m.dead.WithLabelValues(sender, string(why)).Inc()
}

func (m *Metrics) resting(sender string, is bool) {
	v := 0.0
	if is {
		v = 1
	}
	m.rests.WithLabelValues(sender).Set(v)
}
