package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push/decode"
)

// Place is where a record stands in a topic.
type Place struct {
	Partition int32
	Offset    int64
}

// String returns "partition/offset", which is also the key of an audit record.
func (p Place) String() string {
	return strconv.Itoa(int(p.Partition)) + "/" + strconv.FormatInt(p.Offset, 10)
}

// ParsePlace is the inverse of String.
func ParsePlace(s string) (Place, error) {
	partition, offset, _ := strings.Cut(s, "/")
	p, err := strconv.ParseInt(partition, 10, 32)
	if err == nil && p < 0 {
		err = errors.New("negative partition")
	}
	if err != nil {
		return Place{}, fmt.Errorf("%q is not partition/offset", s)
	}
	o, err := strconv.ParseInt(offset, 10, 64)
	if err != nil || o < 0 {
		return Place{}, fmt.Errorf("%q is not partition/offset", s)
	}
	return Place{int32(p), o}, nil
}

// DeadLetter is a record of a DLQ with its parsed headers.
type DeadLetter struct {
	Place
	Topic     string    // the DLQ
	Timestamp time.Time // when it was dead-lettered
	Key       []byte
	Value     []byte // nil = it had none, or was too large to be kept
	Headers   []pipeline.RecordHeader

	Reason  string
	Detail  string // the invalid field, or the provider's last answer; never message text
	Origin  string // topic/partition/offset of the notification's first record
	Attempt int    // provider attempts before the last one
	Hops    int    // hand-overs that were no attempt
	Redrive int    // times redriven before
	// FirstSeen is the Kafka timestamp of the notification's first record, from which
	// its age counts.
	FirstSeen time.Time
	Devices   []string // hashes of the devices it is for; empty = all
	Providers []string // providers of the devices that did not get it; empty = not known

	// Problem says why headers could not be read; nil = all could. A record with a
	// problem can be shown but not redriven.
	Problem error
}

// Step returns the step of the status rows that the dead letter's record wrote.
func (d *DeadLetter) Step() int { return d.Attempt + d.Hops }

// String returns topic and place: "push.promotional.dlq/3/17".
func (d *DeadLetter) String() string { return d.Topic + "/" + d.Place.String() }

var errNoFirstSeen = errors.New("header " + headerFirstSeen + " is missing")

// deadLetter parses a record of a DLQ. The result shares memory with the record.
func deadLetter(r *kgo.Record) *DeadLetter {
	d := &DeadLetter{Place: Place{r.Partition, r.Offset}, Topic: r.Topic, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		d.Headers = append(d.Headers, pipeline.RecordHeader{Key: h.Key, Value: h.Value})
		switch h.Key {
		case headerReason:
			d.Reason = string(h.Value)
		case headerDetail:
			d.Detail = string(h.Value)
		case headerOrigin:
			d.Origin = string(h.Value)
		case headerProvider:
			d.Providers = strings.Split(string(h.Value), ",")
		}
	}
	h, err := parseRetryHeaders(r.Headers)
	if err != nil {
		d.Problem = err
		return d
	}
	d.Attempt, d.Hops, d.Redrive, d.FirstSeen, d.Devices = h.attempt, h.hops, h.redrive, h.firstSeen, h.devices
	if d.FirstSeen.IsZero() {
		d.Problem = errNoFirstSeen
	}
	return d
}

// errStepsUsed is for dead letters without a next step: a status row's step has 15
// bits.
var errStepsUsed = fmt.Errorf("it was handed over %d times, so there is no next step", maxStep)

// partitionKey returns the key that chooses the partition a dead letter is redriven
// to. It must be the same each time: two copies in two partitions would be confirmed
// at the same time, and both sent. If the record has no key, its owner is the key; if
// it has no owner either, its origin.
func (d *DeadLetter) partitionKey() []byte {
	if len(d.Key) > 0 {
		return d.Key
	}
	var it pipeline.Item
	if decode.Message(d.Value, &it.Message) == nil && it.Owner() != "" {
		return []byte(it.Owner())
	}
	return []byte(d.Origin)
}

// redriven returns the record that redrives a dead letter. It is for a retry topic of
// the lane, because only there headers count and every record is confirmed. Its step
// is the dead letter's + 1, so that rows of earlier records are known to be earlier,
// and its retries begin at 0.
func (d *DeadLetter) redriven(topic string) (*kgo.Record, error) {
	switch {
	case d.Problem != nil:
		return nil, fmt.Errorf("%s cannot be redriven: %w", d, d.Problem)
	case d.Step() >= maxStep, d.Redrive >= maxStep:
		return nil, fmt.Errorf("%s cannot be redriven: %w", d, errStepsUsed)
	}
	r := &kgo.Record{Topic: topic, Key: d.partitionKey(), Value: d.Value}
	r.Headers = append(make([]kgo.RecordHeader, 0, 8+len(d.Headers)),
		header(headerVersion, formatVersion),
		header(headerAttempt, "0"),
		header(headerHops, strconv.Itoa(d.Step()+1)),
		header(headerRedrive, strconv.Itoa(d.Redrive+1)),
		header(headerFirstSeen, unixMilli(d.FirstSeen)),
		header(headerOrigin, d.Origin),
		header(headerReason, d.Reason),
	)
	if len(d.Devices) > 0 {
		r.Headers = append(r.Headers, header(headerDevices, strings.Join(d.Devices, ",")))
	}
	for _, h := range d.Headers {
		if !strings.HasPrefix(h.Key, headerPrefix) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	return r, nil
}
