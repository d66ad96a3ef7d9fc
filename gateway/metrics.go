package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/gateway/seal"
)

// Metrics are what a gateway counts. It is safe for concurrent use.
type Metrics struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	messages  *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	receipts  *prometheus.CounterVec
	changes   *prometheus.CounterVec
	joins     *prometheus.CounterVec
	events    *prometheus.CounterVec
	reloads   *prometheus.CounterVec
	keys      prometheus.Gauge
	conns     prometheus.Gauge
	underWay  prometheus.Gauge
	waiting   prometheus.Gauge
	panics    prometheus.Counter
	traceless prometheus.Counter
	reveals   *prometheus.CounterVec
}

// NewMetrics makes and registers them; nil = they are not registered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_requests_total", Help: "Requests answered, by route and status code."}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "push_gateway_request_seconds", Help: "From a request's header to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"route"}),
		messages:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_messages_total", Help: "Messages that could be produced: accepted (Kafka has them), repeated (accepted before, and not written again), unconfirmed, buffer_full."}, []string{"lane", "result"}),
		refusals:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_refused_total", Help: "Messages that were refused, by the problem's code."}, []string{"code"}),
		receipts:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_receipts_total", Help: "Receipts answered, by status."}, []string{"status"}),
		changes:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_user_changes_total", Help: "Changes of users that could be appended to push.users: accepted (Kafka has them), unconfirmed, buffer_full."}, []string{"part", "result"}),
		joins:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_subscription_changes_total", Help: "Changes of subscriptions: accepted (Cassandra has them), refused, unconfirmed."}, []string{"result"}),
		events:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_reported_events_total", Help: "What apps reported of notifications, repeats included: accepted, or the problem's code."}, []string{"event", "result"}),
		reloads:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_keys_reloads_total", Help: "The file of keys was read again: in_force, or refused, so that the former keys stay."}, []string{"result"}),
		keys:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_gateway_keys", Help: "Keys in force."}),
		conns:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_gateway_connections", Help: "Open connections of callers."}),
		underWay:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_gateway_requests_under_way", Help: "Requests that are being answered."}),
		waiting:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_gateway_inbox_waiting", Help: "Requests that wait for something new in an inbox; they are not under way meanwhile."}),
		panics:    prometheus.NewCounter(prometheus.CounterOpts{Name: "push_gateway_panics_total", Help: "Requests whose handler crashed."}),
		traceless: prometheus.NewCounter(prometheus.CounterOpts{Name: "push_gateway_traceless_total", Help: "Answers about messages that workers have passed and left no state of. Must be 0."}),
		reveals:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "push_gateway_confidential_texts_total", Help: "Texts of confidential messages that readers asked for: opened, no_key (it is not in gateway.confidential.keys_file), broken."}, []string{"result"}),
	}
	for _, result := range []string{"opened", "no_key", "broken"} {
		m.reveals.WithLabelValues(result)
	}
	for _, status := range []string{statusPending, statusSending, statusDelivered, statusInbox, statusFailed, statusUnknown} {
		m.receipts.WithLabelValues(status)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.messages, m.refusals, m.receipts, m.changes, m.joins, m.events, m.reloads, m.keys, m.conns, m.underWay, m.waiting, m.panics, m.traceless, m.reveals)
	}
	return m
}

// resultAccepted is the result of messages that Kafka has.
const resultAccepted = "accepted"

// endpoint is a route and what is counted of it.
type endpoint struct {
	name         string // in metrics: its pattern
	method, path string
	fixed        bool // the path has no wildcards
	handler      http.Handler

	metrics *Metrics
	seconds prometheus.Observer
	// codes are the counters of answers, by status less 100; nil = there was none.
	codes [500]atomic.Pointer[prometheus.Counter]
}

func newEndpoint(pattern string, h http.Handler, m *Metrics) *endpoint {
	method, path, _ := strings.Cut(pattern, " ")
	return &endpoint{name: pattern, method: method, path: path, fixed: !strings.Contains(path, "{"), handler: h,
		metrics: m, seconds: m.seconds.WithLabelValues(pattern)}
}

// answered counts a request. Labels are looked up for the first of each status only.
func (e *endpoint) answered(status int, took time.Duration) {
	e.seconds.Observe(took.Seconds())
	counter := &e.codes[min(max(status-100, 0), len(e.codes)-1)]
	c := counter.Load()
	if c == nil {
		made := e.metrics.requests.WithLabelValues(e.name, strconv.Itoa(status))
		c = &made
		counter.Store(c)
	}
	(*c).Inc()
}

func (m *Metrics) sent(lane, result string) { m.messages.WithLabelValues(lane, result).Inc() }
func (m *Metrics) refused(code string)      { m.refusals.WithLabelValues(code).Inc() }
func (m *Metrics) changed(part, result string) {
	m.changes.WithLabelValues(part, result).Inc()
}
func (m *Metrics) subscribed(result string) { m.joins.WithLabelValues(result).Inc() }

// reported counts what an app has told; no event = none could be read.
func (m *Metrics) reported(e clicks.Event, problem *Problem) {
	event, result := "none", resultAccepted
	if e != 0 {
		event = e.String()
	}
	if problem != nil {
		result = problem.Code
	}
	m.events.WithLabelValues(event, result).Inc()
}
func (m *Metrics) receipt(status string) { m.receipts.WithLabelValues(status).Inc() }

// Keys counts the keys in force after the file was read: err = why it was refused.
func (m *Metrics) Keys(inForce int, err error) {
	m.keys.Set(float64(inForce))
	if err != nil {
		m.reloads.WithLabelValues("refused").Inc()
		return
	}
	m.reloads.WithLabelValues("in_force").Inc()
}

// revealed counts a confidential text that was asked for.
func (m *Metrics) revealed(err error) {
	result := "opened"
	switch {
	case errors.Is(err, seal.ErrNoKey):
		result = "no_key"
	case err != nil:
		result = "broken"
	}
	m.reveals.WithLabelValues(result).Inc()
}
