package quota

import "github.com/prometheus/client_golang/prometheus"

// maxNames is how many senders metrics keep apart; what others do is added up as otherName.
const (
	maxNames  = 200
	otherName = "other"
)

var (
	messagesDesc  = prometheus.NewDesc("push_gateway_sender_messages_total", "Messages under a limit of their sender: admitted, refused, or returned (admitted, and not sent after all).", []string{"sender", "result"}, nil)
	remainingDesc = prometheus.NewDesc("push_gateway_sender_remaining", "Messages that a sender may still send in the window, as this gateway knows it.", []string{"sender", "policy"}, nil)
	gatewaysDesc  = prometheus.NewDesc("push_gateway_limits_gateways", "Gateways that share the limits of senders, as Redis said last.", nil, nil)
	alonesDesc    = prometheus.NewDesc("push_gateway_limits_alone", "1 = Redis does not answer, and the gateway admits its part of the limits.", nil, nil)
)

// counts are what became of a sender's messages here.
type counts struct{ admitted, refused, returned int64 }

func (c *counts) add(o counts) {
	c.admitted += o.admitted
	c.refused += o.refused
	c.returned += o.returned
}

// Describe implements prometheus.Collector.
func (q *Quotas) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{messagesDesc, remainingDesc, gatewaysDesc, alonesDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector. The first maxNames senders that came have names, but
// one that is called as the sum of the others is: it is in that.
func (q *Quotas) Collect(to chan<- prometheus.Metric) {
	q.mu.Lock()
	senders := q.limited[:len(q.limited):len(q.limited)]
	q.mu.Unlock()
	tell := func(name string, c counts) {
		for result, n := range map[string]int64{"admitted": c.admitted, "refused": c.refused, "returned": c.returned} {
			to <- prometheus.MustNewConstMetric(messagesDesc, prometheus.CounterValue, float64(n), name, result)
		}
	}
	var others counts
	summed := false
	var standings []Standing
	for i, s := range senders {
		s.mu.Lock()
		c := s.counts
		s.mu.Unlock()
		if i >= maxNames || s.name == otherName {
			others.add(c)
			summed = true
			continue
		}
		tell(s.name, c)
		standings = s.Standings(standings[:0])
		for _, st := range standings {
			to <- prometheus.MustNewConstMetric(remainingDesc, prometheus.GaugeValue, float64(st.Remaining), s.name, st.Name)
		}
	}
	if summed {
		tell(otherName, others)
	}
	alone := 0.0
	if q.isAway() {
		alone = 1
	}
	to <- prometheus.MustNewConstMetric(gatewaysDesc, prometheus.GaugeValue, float64(q.gateways()))
	to <- prometheus.MustNewConstMetric(alonesDesc, prometheus.GaugeValue, alone)
}

func (q *Quotas) isAway() bool {
	q.asking.Lock()
	defer q.asking.Unlock()
	return q.away
}
