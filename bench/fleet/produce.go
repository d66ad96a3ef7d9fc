//go:build unix

package fleet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// Record is one record to produce, with what must become of it.
type Record struct {
	Key, Value []byte
	Want       Want
}

// Want is what must become of a record.
type Want struct {
	// Copy is set for a second record of an id: it has no outcome of its own.
	Copy bool
	// Outcomes that the notification may end with; none = any final one.
	Outcomes []push.Outcome
	// Reason code that its rows must have, without the detail behind it; empty
	// = any. A dead letter's copy in the DLQ must have it too.
	Reason push.Reason
	// Detail that stands behind the reason; empty = any.
	Detail string
	// Unsent is set for what no provider may ever see.
	Unsent bool
	// Limited is set for what counts against the cap of its key's user.
	Limited bool
}

// Fact is what the fleet remembers of a record that Kafka has acknowledged.
type Fact struct {
	Key  string
	Want Want
}

// headerNumber numbers the records, so that each is found again in the topic.
const headerNumber = "fleet-record"

// WantOf is what the crowd means by a fate.
func WantOf(fate crowd.Fate) Want {
	one := func(o ...push.Outcome) []push.Outcome { return o }
	switch fate {
	case crowd.IsCopy:
		return Want{Copy: true}
	case crowd.Reaches:
		return Want{Outcomes: one(push.OutcomeDelivered)}
	case crowd.MayExpire:
		return Want{Outcomes: one(push.OutcomeDelivered, push.OutcomeExpired)}
	case crowd.MayBeLimited:
		return Want{Outcomes: one(push.OutcomeDelivered, push.OutcomeSuppressed), Limited: true}
	case crowd.DeadEnds:
		return Want{Outcomes: one(push.OutcomeFailed, push.OutcomeSuppressed)}
	case crowd.Expires:
		return Want{Outcomes: one(push.OutcomeExpired), Reason: push.PastExpiry, Unsent: true}
	case crowd.DeadLetters:
		return Want{Outcomes: one(push.OutcomeDeadLettered), Unsent: true}
	case crowd.HasNoDevice:
		return Want{Outcomes: one(push.OutcomeSuppressed), Reason: push.NoDevice, Unsent: true}
	}
	return Want{Outcomes: one(push.OutcomeSuppressed), Unsent: true} // opted out
}

// FromCrowd makes up n records.
func FromCrowd(g *crowd.Records, n int) []Record {
	records := make([]Record, n)
	for i := range records {
		r := g.Next(time.Now())
		records[i] = Record{Key: r.Key, Value: r.Value, Want: WantOf(r.Fate)}
	}
	return records
}

// Produce appends the records to the lane's topic and returns when Kafka has
// acknowledged all. One goroutine at a time may call it.
func (f *Fleet) Produce(ctx context.Context, records []Record) error {
	return f.ProduceBy(records, func(batch []kafka.Record) error { return f.writer.Append(ctx, batch) })
}

// ProduceBy is Produce with another way to append some of the records.
func (f *Fleet) ProduceBy(records []Record, by func([]kafka.Record) error) error {
	const group = 1000
	for len(records) > 0 {
		some := records[:min(group, len(records))]
		records = records[len(some):]
		batch := make([]kafka.Record, len(some))
		for i, r := range some {
			batch[i] = kafka.Record{Key: r.Key, Value: r.Value,
				Headers: map[string]string{headerNumber: strconv.Itoa(len(f.facts) + i)}}
		}
		if err := by(batch); err != nil {
			return fmt.Errorf("producing: %w", err)
		}
		for _, r := range some {
			f.facts = append(f.facts, Fact{Key: string(r.Key), Want: r.Want})
		}
	}
	return nil
}

// FillFilter adds the ids of records to the dedupe filter ahead of their being
// produced, so that it answers "maybe" to all of them, and says whether it got
// full on the way.
func (f *Fleet) FillFilter(ctx context.Context, records []Record) (full bool, err error) {
	filter, err := dedupe.New(f.redis, wiring.Filter(f.Config))
	if err != nil {
		return false, err
	}
	// Without this, a filter that is new answers "maybe" for being new.
	if err := filter.DeclareNew(ctx); err != nil {
		return false, err
	}
	ids := make([]string, 0, len(records))
	for _, r := range records {
		var m push.Message
		if decode.Message(r.Value, &m); m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	for some := range slices.Chunk(ids, 1000) {
		if err := filter.Add(ctx, some); err != nil {
			return false, err
		}
	}
	fill, err := filter.Fill(ctx)
	if err != nil {
		return false, err
	}
	full = fill.Maybe > 0
	maybe := make([]bool, len(ids))
	if err := filter.Check(ctx, ids, maybe); err != nil {
		return full, err
	}
	if i := slices.Index(maybe, false); i >= 0 {
		return full, fmt.Errorf("the filter says it has not seen %s, which was added", ids[i])
	}
	return full, nil
}

// Produced is how many records were acknowledged.
func (f *Fleet) Produced() int { return len(f.facts) }

// usersLog appends to push.users.
type usersLog struct{ *kafka.Writer }

// Append implements users.Log.
func (l usersLog) Append(ctx context.Context, records []users.Record) error {
	rs := make([]kafka.Record, len(records))
	for i, r := range records {
		rs[i] = kafka.Record{Key: []byte(r.Key), Value: r.Value}
	}
	return l.Writer.Append(ctx, rs)
}

// usersClient appends to push.users by the writer, which the caller closes.
func (f *Fleet) usersClient() (*kafka.Writer, *users.Client, error) {
	w, err := kafka.NewWriter(f.kafka, kafka.WriterOptions{Topic: kafka.UsersTopic, PartitionKey: users.PartitionKey})
	if err != nil {
		return nil, nil, err
	}
	return w, users.NewClient(usersLog{w}), nil
}

// OptOut opts users out of everything, and returns when Redis has all of that.
func (f *Fleet) OptOut(ctx context.Context, ids []string) error {
	w, client, err := f.usersClient()
	if err != nil {
		return err
	}
	defer w.Close()
	for _, id := range ids {
		if err := client.SetPreferences(ctx, id, push.Preferences{OptOutAll: true}); err != nil {
			return fmt.Errorf("opting out: %w", err)
		}
	}
	return f.awaitOptedOut(ctx, ids)
}

// Register writes all users of a crowd to push.users, as an app's backend
// would. From then on Account holds what their notifications reached against
// the devices that they have, so a fleet has one crowd.
func (f *Fleet) Register(ctx context.Context, c *crowd.Crowd) error {
	f.people = c
	w, client, err := f.usersClient()
	if err != nil {
		return err
	}
	defer w.Close()
	const group = 100_000 // registered at once: of millions not all are made up before
	for from := 0; from < c.Users; from += group {
		if err := registerSome(ctx, client, c, from, min(from+group, c.Users)); err != nil {
			return fmt.Errorf("registering users: %w", err)
		}
	}
	return nil
}

// registerSome registers the users of a crowd from one number up to another.
func registerSome(ctx context.Context, client *users.Client, c *crowd.Crowd, from, to int) error {
	var list []users.Registration
	for i := from; i < to; i++ {
		u := c.User(i)
		for _, d := range u.Devices {
			list = append(list, users.Registration{User: u.ID, Device: d})
		}
		if u.Kind == crowd.OptedOut {
			if err := client.SetPreferences(ctx, u.ID, u.Preferences); err != nil {
				return err
			}
		}
	}
	_, err := client.RegisterDevices(ctx, list)
	return err
}
