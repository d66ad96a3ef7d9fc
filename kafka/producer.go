package kafka

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Tier is one retry topic of a lane, and the deferral topic of the same delay: its
// name ("30s") and the delay.
type Tier struct {
	Name  string
	Delay time.Duration
}

// ProducerOptions are the options of a lane's Producer.
type ProducerOptions struct {
	Topic      string // the lane's own topic: its retry, deferral and hold topics and its DLQ are named after it
	Tiers      []Tier // of retries: at least one, in any order
	DeferTiers []Tier // of what is put off, likewise; none = Tiers
	Feedback   string // topic for dead tokens; empty = FeedbackTopic
	Events     string // topic for verdict counts and final failures; empty = EventsTopic
	Metrics    *Metrics
}

// Producer hands records over for one lane. It writes idempotently, with acks from all
// in-sync replicas, and waits for each record. It implements pipeline.Producer and is
// safe for concurrent use.
type Producer struct {
	options ProducerOptions
	client  *kgo.Client
	late    late
}

var _ pipeline.Producer = (*Producer)(nil)

// NewProducer returns a Producer, which connects on the first Produce.
func NewProducer(o Options, po ProducerOptions) (*Producer, error) {
	po.Feedback, po.Events = cmp.Or(po.Feedback, FeedbackTopic), cmp.Or(po.Events, EventsTopic)
	if po.Metrics == nil {
		po.Metrics = NewMetrics(nil)
	}
	switch {
	case po.Topic == "":
		return nil, errors.New("kafka producer: no topic")
	case len(po.Tiers) == 0:
		return nil, errors.New("kafka producer: no tier")
	case po.Feedback == po.Topic, po.Events == po.Topic:
		return nil, fmt.Errorf("kafka producer: feedback or events would go into the lane's own topic %s", po.Topic)
	}
	if len(po.DeferTiers) == 0 {
		po.DeferTiers = po.Tiers
	}
	for _, tiers := range []*[]Tier{&po.Tiers, &po.DeferTiers} {
		for _, t := range *tiers {
			if t.Name == "" || t.Delay <= 0 {
				return nil, errors.New("kafka producer: a tier needs a name and a delay")
			}
		}
		*tiers = slices.SortedFunc(slices.Values(*tiers), func(a, b Tier) int { return cmp.Compare(a.Delay, b.Delay) })
	}
	client, err := o.newClient(
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// The caller waits for each hand-over, so a linger only adds delay; the
		// records that gather while requests are in flight make good batches.
		kgo.ProducerLinger(0),
		// Callers bound what they hand over. A bound here would let one topic that takes
		// nothing keep the records of all others waiting.
		kgo.MaxBufferedRecords(math.MaxInt32),
	)
	if err != nil {
		return nil, fmt.Errorf("kafka producer: %w", err)
	}
	return &Producer{options: po, client: client, late: late{of: make(map[string]int)}}, nil
}

// Produce implements pipeline.Producer. The records share memory with the items. After
// an error that memory must not be reused, because some records may still be in flight.
func (p *Producer) Produce(ctx context.Context, hs []pipeline.Handover) error {
	records := make([]*kgo.Record, len(hs))
	now := time.Now()
	for i := range hs {
		r, err := p.record(&hs[i], now)
		if err != nil {
			return fmt.Errorf("handing over: %w", err)
		}
		records[i] = r
	}
	results := p.sendTimely(ctx, records, hs)
	p.forgetRemade(records, results)
	var partly pipeline.PartlyError
	for i, err := range results {
		if errors.Is(err, kerr.MessageTooLarge) {
			err = p.sendLarge(ctx, records[i], &hs[i])
		}
		if err == nil {
			p.options.Metrics.produced.WithLabelValues(records[i].Topic).Inc()
			continue
		}
		partly.Err = fmt.Errorf("handing over to %s: %w", records[i].Topic, err)
		if errors.Is(err, kerr.MessageTooLarge) && hs[i].To != pipeline.ToDLQ {
			partly.Refused = append(partly.Refused, i)
		} else {
			partly.Open = append(partly.Open, i)
		}
	}
	if partly.Err != nil {
		return &partly
	}
	return nil
}

// forgetRemade has the client learn topics anew that were deleted and made again. It writes
// nothing to a name that has got another id, until it is told to forget the former one.
func (p *Producer) forgetRemade(records []*kgo.Record, results []error) {
	var remade []string
	for i, r := range records {
		if errors.Is(results[i], kerr.UnknownTopicID) && !slices.Contains(remade, r.Topic) {
			remade = append(remade, r.Topic)
		}
	}
	p.client.PurgeTopicsFromProducing(remade...) // what else waits for them fails, and is repeated
}

// sendLarge sends a record that was refused as too large again on its own: perhaps
// only its batch was too large. If a record itself is too large for the DLQ, as
// much of it goes there as fits.
func (p *Producer) sendLarge(ctx context.Context, r *kgo.Record, h *pipeline.Handover) error {
	tries := []*kgo.Record{{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}}
	if h.To == pipeline.ToDLQ {
		tries = append(tries, withoutValue(r, h.Item), placeAndReason(r, h))
	}
	var err error
	for _, try := range tries {
		if err = p.send(ctx, []*kgo.Record{try})[0]; !errors.Is(err, kerr.MessageTooLarge) {
			return err
		}
	}
	return err
}

// Close gives up the records still in flight, and closes the connections.
func (p *Producer) Close() { p.client.Close() }

// record makes the Kafka record of a hand-over.
func (p *Producer) record(h *pipeline.Handover, now time.Time) (*kgo.Record, error) {
	if h.To == pipeline.ToEvents {
		return &kgo.Record{Topic: p.options.Events, Key: h.EventKey, Value: h.Event}, nil
	}
	it := h.Item
	if h.To == pipeline.ToEnds {
		return &kgo.Record{Topic: WebhooksTopic(it.SenderID), Key: []byte(it.RowID()), Value: h.Event}, nil
	}
	if h.To == pipeline.ToDeadEnds {
		letter := DeadWebhook{Sender: it.SenderID, Reason: TopicRefused, Detail: h.Detail, Made: h.EndedAt, Key: []byte(it.RowID()), Value: h.Event}
		return letter.record(), nil
	}
	r := &kgo.Record{Key: it.Key, Value: it.Value}
	switch h.To {
	case pipeline.ToRetry:
		r.Topic = RetryTopic(p.options.Topic, fitting(p.options.Tiers, h.NotBefore.Sub(now)))
		r.Key, r.Headers = retryKey(it), retryHeadersOf(h)
	case pipeline.ToDefer:
		r.Topic = DeferTopic(p.options.Topic, fitting(p.options.DeferTiers, h.NotBefore.Sub(now)))
		r.Key, r.Headers = retryKey(it), retryHeadersOf(h)
	case pipeline.ToHold:
		if h.Platform == push.NoPlatform || h.NotBefore.IsZero() {
			return nil, errors.New("a held record needs a platform and a time")
		}
		r.Topic = holdTopic(p.options.Topic, h.Platform)
		r.Key, r.Headers = retryKey(it), retryHeadersOf(h)
	case pipeline.ToDLQ:
		r.Topic = DLQTopic(p.options.Topic)
		r.Headers = retryHeadersOf(h)
		if h.Detail != "" {
			r.Headers = append(r.Headers, header(headerDetail, h.Detail))
		}
		if len(h.Providers) > 0 {
			r.Headers = append(r.Headers, header(headerProvider, platforms(h.Providers)))
		}
		if h.Reason == push.TooLarge {
			r = withoutValue(r, it)
		}
	case pipeline.ToFeedback:
		r.Topic = p.options.Feedback
		r.Key, r.Value = []byte(it.Owner()), feedbackValue(h)
	default:
		return nil, fmt.Errorf("unknown destination %d", h.To)
	}
	// A record of a retry, deferral or hold topic may go into the same topic again,
	// because its attempts and hops are counted. Any other could circle for ever.
	if r.Topic == it.Partition.Topic && !waits(r.Topic, p.options.Topic) || r.Topic == p.options.Topic {
		return nil, fmt.Errorf("topic %s would be written into itself", r.Topic)
	}
	return r, nil
}

// retryKey returns the key of a record's copy in a topic where it waits. If the
// record has no key, it is that of its owner. So a hand-over that is repeated
// because its row was lost goes to the same partition as the first one, whose
// tracker admits only one open copy of an id.
func retryKey(it *pipeline.Item) []byte {
	if len(it.Key) == 0 {
		return []byte(it.Owner())
	}
	return it.Key
}

// withoutValue returns a dead letter that has the size of its record instead of
// its value.
func withoutValue(r *kgo.Record, it *pipeline.Item) *kgo.Record {
	headers := append(r.Headers[:len(r.Headers):len(r.Headers)], header(headerSize, strconv.Itoa(it.Size)))
	return &kgo.Record{Topic: r.Topic, Key: r.Key, Headers: headers}
}

// placeAndReason returns the smallest dead letter: where its record is, and why it
// is dead.
func placeAndReason(r *kgo.Record, h *pipeline.Handover) *kgo.Record {
	return &kgo.Record{Topic: r.Topic, Headers: append(placeHeaders(h), header(headerSize, strconv.Itoa(h.Item.Size)))}
}

// tierSlack lets a tier fit although part of the wait has passed since the decision.
const tierSlack = time.Second

// fitting returns the largest of the tiers, which are sorted, that fits the wait. A record
// that is not due when the tier ends waits longer in it; one that is due sooner takes the
// smallest tier.
func fitting(tiers []Tier, wait time.Duration) string {
	best := tiers[0]
	for _, t := range tiers[1:] {
		if t.Delay <= wait+min(tierSlack, t.Delay/10) {
			best = t
		}
	}
	return best.Name
}

// platforms returns the platforms' names, sorted and comma-separated.
func platforms(ps []push.Platform) string {
	var names []string
	for _, p := range slices.Sorted(slices.Values(ps)) {
		names = append(names, p.String())
	}
	return strings.Join(names, ",")
}

func header(key, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: []byte(value)}
}

func unixMilli(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// placeHeaders returns the headers that every copy of a record has.
func placeHeaders(h *pipeline.Handover) []kgo.RecordHeader {
	it := h.Item
	return append(make([]kgo.RecordHeader, 0, 12+len(it.Trace)),
		header(headerVersion, formatVersion),
		header(headerAttempt, strconv.Itoa(h.Attempt)),
		header(headerHops, strconv.Itoa(h.Hops)),
		header(headerRedrive, strconv.Itoa(it.Redrive)),
		header(headerFirstSeen, unixMilli(it.FirstSeen.Time())),
		header(headerOrigin, origin(it)),
		header(headerReason, string(h.Reason)),
	)
}

// retryHeadersOf returns the headers of a retry record. A dead letter has them too, so
// that a redrive knows where to go on.
func retryHeadersOf(h *pipeline.Handover) []kgo.RecordHeader {
	it := h.Item
	hs := placeHeaders(h)
	if !h.NotBefore.IsZero() {
		// Rounded up, so that the record is never early.
		hs = append(hs, header(headerNotBefore, unixMilli(h.NotBefore.Add(time.Millisecond-1))))
	}
	if h.State != 0 {
		hs = append(hs, header(headerState, h.State.String()))
	}
	if it.Allowed && h.To != pipeline.ToDLQ { // a redrive asks the limits again
		hs = append(hs, header(headerAllowed, yes))
	}
	if it.Paid && h.Attempt == it.Attempt && h.To != pipeline.ToDLQ { // an attempt has used it
		hs = append(hs, header(headerPaid, yes))
	}
	if len(h.Devices) > 0 {
		hs = append(hs, header(headerDevices, strings.Join(h.Devices, ",")))
	}
	for _, t := range it.Trace {
		if t.Key != headerOrigin && (t.Key != HeaderAdmitted || h.To != pipeline.ToDLQ) {
			hs = append(hs, kgo.RecordHeader{Key: t.Key, Value: t.Value})
		}
	}
	return hs
}

// Feedback is the value of a record of push.feedback: a provider reported that a token
// is dead. It does not contain the token.
type Feedback struct {
	UserID      string `json:"user_id"`
	Device      string `json:"device"` // its hash
	Platform    string `json:"platform"`
	App         string `json:"app"`
	Reason      string `json:"reason"`
	DeadSinceMS int64  `json:"dead_since_ms"` // 0 = the provider did not say
	AtMS        int64  `json:"at_ms"`         // when the failed send was handed to the provider
}

func feedbackValue(h *pipeline.Handover) []byte {
	f := Feedback{UserID: h.Item.Owner(), Device: h.Device.Hash, Platform: h.Device.Platform.String(), App: h.Device.App,
		Reason: string(h.Reason), AtMS: max(0, h.SentAt.UnixMilli())}
	if f.Device == "" {
		f.Device = push.DeviceHash(h.Device.Platform, h.Device.Token)
	}
	if f.App == "" {
		f.App = h.Item.App
	}
	if !h.DeadSince.IsZero() {
		f.DeadSinceMS = h.DeadSince.UnixMilli()
	}
	value, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return value
}
