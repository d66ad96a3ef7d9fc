package dlq

import (
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// record is a dead letter with what its message and its lane say about it. It
// shares the memory of the Kafka record, including text and tokens.
type record struct {
	*kafka.DeadLetter
	lane    *Lane
	message push.Message // what of it could be decoded
	defect  *push.Defect // why it could not be
	mark    kafka.Mark   // what an operator did with it
	marked  bool
}

func newRecord(lane *Lane, d *kafka.DeadLetter, marks kafka.Marks) record {
	r := record{DeadLetter: d, lane: lane}
	r.mark, r.marked = marks.Of(d)
	if d.Value == nil {
		r.defect = &push.Defect{Reason: push.EmptyValue}
	} else {
		r.defect = decode.Message(d.Value, &r.message)
	}
	return r
}

// expires is when the worker no longer sends it: its expires_at, or when it
// reaches its lane's greatest age. Zero: its age is unknown.
func (r *record) expires() time.Time {
	if r.FirstSeen.IsZero() {
		return r.message.ExpiresAt
	}
	oldest := r.FirstSeen.Add(r.lane.GreatestAge)
	if at := r.message.ExpiresAt; !at.IsZero() && at.Before(oldest) {
		return at
	}
	return oldest
}

// expired reports whether it is too late to send it.
func (r *record) expired(at time.Time) bool {
	e := r.expires()
	return !e.IsZero() && !at.Before(e)
}

// providers are those that did not take it, or that it was for.
func (r *record) providers() []string {
	if len(r.Providers) > 0 {
		return r.Providers
	}
	if p := r.message.Device.Platform; p != push.NoPlatform {
		return []string{p.String()}
	}
	return nil
}

// lastAnswer is the provider's last reason, if the retries are used up.
func (r *record) lastAnswer() string {
	if r.Reason == string(push.RetriesUsed) {
		return r.Detail
	}
	return ""
}

// statusID is the id of its status rows; empty = unknown.
func (r *record) statusID() string {
	if r.message.ID != "" && r.defect == nil && r.Reason != string(push.IDReused) {
		return r.message.ID
	}
	topic, place, ok := cutTopic(r.Origin)
	if !ok || r.Step() > 0 || r.Redrive > 0 {
		return "" // it stands under the place of a later record
	}
	return push.PlaceID(topic, place.Partition, place.Offset)
}

// cutTopic splits "topic/partition/offset".
func cutTopic(s string) (topic string, place kafka.Place, ok bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return "", place, false
	}
	place, err := kafka.ParsePlace(parts[1] + "/" + parts[2])
	return parts[0], place, err == nil
}
