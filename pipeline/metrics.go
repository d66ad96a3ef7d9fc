package pipeline

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// Metrics are the pipeline's metrics, shared by all lanes of a worker. No label ever
// carries an id, a user or a token. All methods are safe for concurrent use.
type Metrics struct {
	Gates *gates.Metrics // of the routes' gates

	batchSize    *prometheus.HistogramVec // lane
	stageSeconds *prometheus.HistogramVec // lane, stage
	failures     *prometheus.CounterVec   // lane, step
	deliveries   *prometheus.CounterVec   // provider, result
	responses    *prometheus.CounterVec   // provider, app, class, reason
	window       *prometheus.GaugeVec     // route
	boundGauge   *prometheus.GaugeVec     // lane
	ambiguities  *prometheus.CounterVec   // action
	kept         *prometheus.CounterVec   // app
	deduped      *prometheus.CounterVec   // lane
	suppressed   *prometheus.CounterVec   // lane, reason
	shed         *prometheus.CounterVec   // lane, priority, reason
	depth        *prometheus.GaugeVec     // lane
	lowered      *prometheus.CounterVec   // lane
	endings      *prometheus.CounterVec   // lane, verdict
	endToEnd     *prometheus.HistogramVec // lane
	missedAdds   prometheus.Counter
	buried       *prometheus.CounterVec // lane, sender
	panics       *prometheus.CounterVec // lane, stage

	words map[string]bool // reasons that have a series of their own; read only

	mu    sync.Mutex
	lanes map[string]*laneMetrics // guarded by mu
}

// laneMetrics are the children of one lane, resolved once.
type laneMetrics struct {
	batchSize prometheus.Observer
	deduped   prometheus.Counter
	endToEnd  prometheus.Observer
	verdicts  [push.Verdicts]prometheus.Counter
}

// ownWords are the reasons of results that no provider gave. That of StepEncode says
// where our code panicked.
var ownWords = [...]push.Reason{push.InvalidToken, push.PayloadTooLarge, push.InvalidMessage, push.PastExpiry, push.Timeout, push.ConnectionLost, push.NotConnected, push.AuthFailed, push.Panicked, push.Reason(StepEncode)}

// NewMetrics makes the metrics and registers them. words are the reasons that the
// providers are known to give: each has a series, and all others share one.
func NewMetrics(reg prometheus.Registerer, words ...string) *Metrics {
	with := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return with.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return with.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: 1.1}, labels)
	}
	m := &Metrics{
		words:        map[string]bool{"": true},
		lanes:        make(map[string]*laneMetrics),
		batchSize:    histogram("push_batch_size", "Records of a batch.", prometheus.ExponentialBuckets(1, 10, 5), "lane"),
		stageSeconds: histogram("push_stage_duration_seconds", "Time a batch spent in a stage, repeats included.", prometheus.ExponentialBuckets(0.001, 4, 8), "lane", "stage"),
		failures:     counter("push_step_failures_total", "Times a step could not be done and is tried again.", "lane", "step"),
		deliveries:   counter("push_deliveries_total", "Sends to one device, by what became of them.", "provider", "result"),
		responses:    counter("push_provider_responses_total", "Answers by the provider's reason.", "provider", "app", "class", "reason"),
		window:       gauge("push_provider_inflight", "Sends in flight and answers whose status is not durable yet.", "route"),
		boundGauge:   gauge("push_duplicate_bound", "The most sends that a hard kill of this worker can repeat.", "lane"),
		ambiguities:  counter("push_ambiguous_total", "Sends of which nobody can tell whether they were accepted: resend = sent again, unknown = ended UNKNOWN, end = retries used up or expired.", "action"),
		kept:         counter("push_tokens_kept_total", "Tokens that a provider called dead and that are kept, because it says so of too many of the app's.", "app"),
		deduped:      counter("push_deduped_total", "Records that were a copy of one with an outcome.", "lane"),
		suppressed:   counter("push_suppressed_total", "Notifications not sent on purpose.", "lane", "reason"),
		shed:         counter("push_shed_total", "Notifications that ended SHED: not sent because too much waited in their lane, or because their turn would come too late.", "lane", "priority", "reason"),
		depth:        gauge("push_lane_depth", "Records of a lane that wait to be sent, in the partition of this worker that has the most, times the partitions: what shedding goes by.", "lane"),
		lowered:      counter("push_priority_lowered_total", "Notifications of priority critical whose sender may not use it in this lane: they went with high.", "lane"),
		endings:      counter("push_endings_total", "Records that ended, by verdict; undecided ones went to their devices.", "lane", "verdict"),
		endToEnd:     histogram("push_end_to_end_latency_seconds", "From the record's Kafka timestamp to the provider's answer.", prometheus.ExponentialBuckets(0.005, 2, 18), "lane"),
		missedAdds:   with.NewCounter(prometheus.CounterOpts{Name: "push_dedupe_missed_adds_total", Help: "Ids that the filter could not take when asked; it is asked again before their offsets are committed."}),
		buried:       counter("push_ends_dead_letters_total", "Ends that the topic of their sender did not take, and that are in push.webhooks-dlq.", "lane", "sender"),
		panics:       counter("push_panics_total", "Panics of a stage, of the decoder or of a provider that were caught; what caused them three times alone goes to the DLQ.", "lane", "stage"),
		Gates:        gates.NewMetrics(reg),
	}
	for _, r := range ownWords {
		m.words[string(r)] = true
	}
	for _, w := range words {
		m.words[w] = true
	}
	return m
}

func (m *Metrics) lane(name string) *laneMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lanes[name]
	if l == nil {
		l = &laneMetrics{batchSize: m.batchSize.WithLabelValues(name), deduped: m.deduped.WithLabelValues(name), endToEnd: m.endToEnd.WithLabelValues(name)}
		for v := range l.verdicts {
			l.verdicts[v] = m.endings.WithLabelValues(name, push.Verdict(v).String())
		}
		m.lanes[name] = l
	}
	return l
}

// steps makes the series of a lane's steps at 0, so that rate() sees their first
// failure or panic.
func (m *Metrics) steps(lane string, stages []Stage) {
	for _, s := range stages {
		m.failures.WithLabelValues(lane, string(s.Name()))
		m.panics.WithLabelValues(lane, string(s.Name()))
	}
	for _, step := range panicking {
		m.panics.WithLabelValues(lane, string(step))
	}
	for _, step := range steps {
		m.failures.WithLabelValues(lane, string(step))
	}
}

// Lowered returns the counter of a lane's notifications whose sender may not use
// priority critical. Its series is there from the start.
func (m *Metrics) Lowered(lane string) func(n int) {
	c := m.lowered.WithLabelValues(lane)
	return func(n int) { c.Add(float64(n)) }
}

// Sheds makes the series of a lane that sheds at 0, so that rate() sees the first. It
// returns the gauge of the lane's depth.
func (m *Metrics) Sheds(lane string) (depth prometheus.Gauge) {
	for p := push.Bulk; p < push.Critical; p++ {
		for _, r := range []push.Reason{push.ShedDepth, push.ShedDeadline} {
			m.shed.WithLabelValues(lane, p.String(), string(r))
		}
	}
	return m.depth.WithLabelValues(lane)
}

// keptTokens counts dead tokens that are not reported.
func (m *Metrics) keptTokens(app string, n int) { m.kept.WithLabelValues(app).Add(float64(n)) }

// deadEnds counts ends of a sender that are dead letters of webhooks.
func (m *Metrics) deadEnds(lane, sender string, n int) {
	m.buried.WithLabelValues(lane, sender).Add(float64(n))
}

func (m *Metrics) bound(lane string, n int) { m.boundGauge.WithLabelValues(lane).Set(float64(n)) }

func (m *Metrics) polled(lane string, b *Batch) {
	m.lane(lane).batchSize.Observe(float64(len(b.Items)))
}

func (m *Metrics) stage(lane string, stage Step, d time.Duration) {
	m.stageSeconds.WithLabelValues(lane, string(stage)).Observe(d.Seconds())
}

func (m *Metrics) failedStep(lane string, step Step) {
	m.failures.WithLabelValues(lane, string(step)).Inc()
}

// results counts the results of a group whose endings are decided. Most are alike, so equal
// ones are counted together.
func (m *Metrics) results(lane string, group []*Delivery) {
	l, now := m.lane(lane), time.Now()
	var room [8]resultCount // a group is of one route, and few kinds of results are in it
	counts := room[:0]
	for _, d := range group {
		k := resultKind{d.Route.Platform, d.Route.App, d.Result.Class, d.Result.Reason}
		switch k.class {
		case push.Unsent:
			continue
		case push.Held, push.Claimed:
			k.reason = ""
		default:
			l.endToEnd.Observe(now.Sub(d.Item.Timestamp.Time()).Seconds())
		}
		i := slices.IndexFunc(counts, func(c resultCount) bool { return c.resultKind == k })
		if i < 0 {
			i, counts = len(counts), append(counts, resultCount{resultKind: k})
		}
		counts[i].n++
	}
	for _, c := range counts {
		m.deliveries.WithLabelValues(c.platform.String(), c.class.String()).Add(float64(c.n))
		m.responses.WithLabelValues(c.platform.String(), c.app, c.class.String(), m.Word(c.reason)).Add(float64(c.n))
	}
	m.ambiguous(group)
}

// resultKind is what results are counted by.
type resultKind struct {
	platform push.Platform
	app      string
	class    push.Class
	reason   string
}

type resultCount struct {
	resultKind
	n int
}

// otherWords is the label of reasons that a provider is not known to give.
const otherWords = "other"

// Word is a word as metrics tell it: "other" if no provider is known to give it. So it
// bounds how many series a server can cause, and what of an answer others can read.
func (m *Metrics) Word(word string) string {
	if m.words[word] {
		return word
	}
	return otherWords
}

// ambiguous counts the sends that may or may not have been accepted, by what is done
// about them.
func (m *Metrics) ambiguous(group []*Delivery) {
	for _, d := range group {
		if d.Result.Certainty != push.Ambiguous || d.abandoned {
			continue
		}
		action := "resend"
		switch d.ending.State {
		case push.StateUnknown:
			action = "unknown"
		case push.StateRetrying:
		default:
			action = "end"
		}
		m.ambiguities.WithLabelValues(action).Inc()
	}
}

// ended counts items whose outcome is durable.
func (m *Metrics) ended(lane string, items []*Item) {
	l := m.lane(lane)
	var verdicts [push.Verdicts]int
	suppressed := make(map[push.Reason]int)
	shed := make(map[shedKind]int)
	for _, it := range items {
		verdicts[it.Verdict]++
		switch it.Verdict {
		case push.Suppressed:
			suppressed[it.Reason]++
		case push.Shed:
			shed[shedKind{it.Priority, it.Reason}]++
		}
	}
	for v, n := range verdicts {
		if n > 0 {
			l.verdicts[v].Add(float64(n))
		}
	}
	l.deduped.Add(float64(verdicts[push.Duplicate]))
	for r, n := range suppressed {
		m.suppressed.WithLabelValues(lane, string(r)).Add(float64(n))
	}
	for k, n := range shed {
		m.shed.WithLabelValues(lane, k.priority.String(), string(k.reason)).Add(float64(n))
	}
}

// shedKind is what shed notifications are counted by.
type shedKind struct {
	priority push.Priority
	reason   push.Reason
}
