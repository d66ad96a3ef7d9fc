package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

func newDLQCommand(a *app) *cobra.Command {
	return newGroup("dlq", "Dead letters: look at them, send them again, put them away",
		newDLQLsCommand(a), newDLQShowCommand(a), newDLQStatsCommand(a), newDLQRedriveCommand(a), newDLQDismissCommand(a), newDLQPurgeCommand(a))
}

// letter is a dead letter with what its message and its lane say of it.
type letter struct {
	*kafka.DeadLetter
	lane    *configs.Lane
	message push.Message // what of it could be decoded
	defect  *push.Defect // why it could not be
	mark    kafka.Mark   // what an operator did with it
	marked  bool
}

func newLetter(lane *configs.Lane, d *kafka.DeadLetter, marks kafka.Marks) letter {
	l := letter{DeadLetter: d, lane: lane}
	l.mark, l.marked = marks.Of(d)
	if d.Value == nil {
		l.defect = &push.Defect{Reason: push.EmptyValue}
	} else {
		l.defect = decode.Message(d.Value, &l.message)
	}
	return l
}

// expires is when the worker sends it no more: its expires_at, or when it
// reaches its lane's greatest age. Zero: its age is not known.
func (l *letter) expires() time.Time {
	if l.FirstSeen.IsZero() {
		return l.message.ExpiresAt
	}
	oldest := l.FirstSeen.Add(l.lane.GreatestAge)
	if at := l.message.ExpiresAt; !at.IsZero() && at.Before(oldest) {
		return at
	}
	return oldest
}

// expired reports whether there is no more sending it at this time.
func (l *letter) expired(at time.Time) bool {
	e := l.expires()
	return !e.IsZero() && !at.Before(e)
}

// providers are those that did not take it, or that it was for.
func (l *letter) providers() []string {
	if len(l.Providers) > 0 {
		return l.Providers
	}
	if p := l.message.Device.Platform; p != push.NoPlatform {
		return []string{p.String()}
	}
	return nil
}

// lastAnswer is the provider's last word, of those whose retries are used up.
func lastAnswer(l *letter) string {
	if l.Reason == string(push.RetriesUsed) {
		return l.Detail
	}
	return ""
}

// statusID is what its status rows stand under; empty = not known.
func (l *letter) statusID() string {
	if l.message.ID != "" && l.defect == nil && l.Reason != string(push.IDReused) {
		return l.message.ID
	}
	topic, place, ok := cutTopic(l.Origin)
	if !ok || l.Step() > 0 || l.Redrive > 0 {
		return "" // it stands under the place of a later record
	}
	return push.PlaceID(topic, place.Partition, place.Offset)
}

// cutTopic parts "topic/partition/offset".
func cutTopic(s string) (topic string, place kafka.Place, ok bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return "", place, false
	}
	place, err := kafka.ParsePlace(parts[1] + "/" + parts[2])
	return parts[0], place, err == nil
}

// dlqLanes are the lanes that --lane names: by the lane's name, its topic or
// its DLQ; none = all.
func (a *app) dlqLanes(names []string) ([]*configs.Lane, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	var lanes []*configs.Lane
	known := make([]string, len(c.Lanes))
	for i := range c.Lanes {
		l := &c.Lanes[i]
		known[i] = l.Name
		if len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return n == l.Name || n == l.Topic || n == kafka.DLQTopic(l.Topic) }) {
			lanes = append(lanes, l)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(lanes, func(l *configs.Lane) bool { return n == l.Name || n == l.Topic || n == kafka.DLQTopic(l.Topic) }) {
			return nil, usagef("--lane: there is no lane or topic %q; the configuration has %s", n, strings.Join(known, ", "))
		}
	}
	return lanes, nil
}

// openDLQ opens a lane's DLQ and reads the marks of its audit topic. The DLQ
// must be there; the audit topic too, if something is to be noted in it.
func (a *app) openDLQ(ctx context.Context, lane *configs.Lane, note bool) (*kafka.DLQ, kafka.Marks, error) {
	topics := []string{kafka.DLQTopic(lane.Topic)}
	if note {
		topics = append(topics, kafka.AuditTopic(lane.Topic))
	}
	admin, err := a.reachKafka(ctx, topics...)
	if err != nil {
		return nil, nil, err
	}
	opts, err := a.kafkaOptions()
	if err != nil {
		return nil, nil, err
	}
	q, err := kafka.NewDLQ(opts, lane.Topic)
	if err != nil {
		return nil, nil, err
	}
	a.onClose(q.Close)
	if !note {
		var missing *kafka.MissingTopicsError
		switch err := admin.CheckTopics(ctx, kafka.AuditTopic(lane.Topic)); {
		case errors.As(err, &missing):
			return q, nil, nil // nobody has noted anything yet
		case err != nil:
			return nil, nil, err
		}
	}
	marks, err := q.Audit().Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	return q, marks, nil
}

// eachLetter hands out the dead letters of the lanes that pass the filter, of
// what is there when a lane's turn comes, until each returns errEnough.
func (a *app) eachLetter(ctx context.Context, f *letterFilter, show *progress, each func(letter) error) error {
	lanes, err := a.dlqLanes(f.lanes)
	if err != nil {
		return err
	}
	for _, lane := range lanes {
		q, marks, err := a.openDLQ(ctx, lane, false)
		if err != nil {
			return err
		}
		extent, err := q.Since(ctx, f.since.Time)
		if err != nil {
			return err
		}
		read := 0
		err = q.Read(ctx, extent, func(d *kafka.DeadLetter) error {
			if read++; read%1000 == 0 {
				show.line("%s: %d of %d records looked at", q.Topic(), read, extent.Records())
			}
			l := newLetter(lane, d, marks)
			if !f.passes(&l) {
				return nil
			}
			return each(l)
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a reading early.
var errEnough = errors.New("enough")

// moment is a flag that names a time: RFC 3339, a day (UTC), or a duration
// before now.
type moment struct {
	time.Time
	now func() time.Time
}

// Set implements pflag.Value.
func (m *moment) Set(s string) error {
	now := time.Now
	if m.now != nil {
		now = m.now
	}
	if d, err := time.ParseDuration(s); err == nil {
		if d < 0 {
			return errors.New("want a time, or a duration before now without a sign")
		}
		m.Time = now().Add(-d)
		return nil
	}
	for _, layout := range [...]string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			m.Time = t
			return nil
		}
	}
	return fmt.Errorf("want a time like 2026-11-21T10:00:00Z, a day like 2026-11-21 (UTC), or a duration before now like 90m")
}

func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.UTC().Format(time.RFC3339)
}

// Type implements pflag.Value.
func (*moment) Type() string { return "time" }
