package dlq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

// Logs is where the lanes' own topics are.
type Logs interface {
	// OpenLog opens a lane's own topic. It is used by one goroutine, and ends when the
	// Log is closed.
	OpenLog(topic string) (Log, error)
}

// Log is a lane's own topic. Its methods are those of *kafka.LaneLog.
type Log interface {
	Between(ctx context.Context, since, until time.Time) (kafka.Extent, error)
	Read(ctx context.Context, e kafka.Extent, each func(*kafka.DeadLetter) error) error
	Redrive(ctx context.Context, records []*kafka.DeadLetter, tier string) error
	Note(ctx context.Context, r kafka.Replay) error
	Close()
}

// Ledger reads the status rows of ids, aligned with them.
type Ledger interface {
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// ReplayOptions say which shed notifications are sent, and how fast.
type ReplayOptions struct {
	Lanes, Apps, Senders, IDs []string  // as of a Filter
	Since, Until              time.Time // bounds of the records' timestamps; zero = none
	Rate                      float64   // at most this many a second, 0.1 to 100,000
	Limit                     int       // at most this many in all; 0 = all
	Do                        bool      // false = a dry run
	By                        string    // who does it, for the audit topic
	List                      int       // how many the result names
	Progress                  func(Replaying)
}

// Check finds invalid options. The error is an *OptionError.
func (o *ReplayOptions) Check() error {
	r := RedriveOptions{Rate: o.Rate, Limit: o.Limit, List: o.List, MaxRedrives: 1}
	return r.Check()
}

// Replaying is the progress of a replay.
type Replaying struct {
	Read, Replayed int
	Of             int64 // records to read; an upper estimate
}

// Replayed is the result of a replay; its JSON keys are those of `pushctl replay`.
type Replayed struct {
	DryRun   bool           `json:"dry_run"`
	Read     int            `json:"read"`          // records of the lanes' topics
	Matched  int            `json:"matched"`       // of notifications that are SHED
	Replayed int            `json:"replayed"`      // in a dry run: what would be replayed
	Skipped  map[string]int `json:"skipped"`       // of those that matched: count by reason
	Topics   []string       `json:"topics"`        // that they go to
	Delay    float64        `json:"delay_seconds"` // until the workers take them up
	Shed     []ShedRecord   `json:"shed"`          // the first of those replayed
}

// ShedRecord is a shed notification as an operator sees it, without its text.
type ShedRecord struct {
	Place     string     `json:"place"` // topic/partition/offset
	Time      time.Time  `json:"time"`
	ID        string     `json:"id"`
	App       string     `json:"app"`
	Priority  string     `json:"priority"` // as written; empty = the lane's default
	Reason    string     `json:"reason"`   // of its row
	ExpiresAt *time.Time `json:"expires_at"`
}

// SkipCopy is the reason for a second record of an id in one replay. Only among the
// latest 131,072 ids is it known that it is one: a copy from further away is replayed too,
// and the workers end it as a copy.
const SkipCopy = "copy"

// replayRead is how many ids are looked up at once.
const replayRead = 500

// Replay sends the notifications again whose outcome is SHED, from what the lanes' own
// topics still hold, each to the smallest retry topic of its lane: as a redrive does, with
// a step above that of its rows. So workers confirm it, ask the limits, and never shed it.
// One that is replayed twice is sent once. Each lane's audit topic says who began it and
// how many were sent.
//
// With an error the result is what was sent and acknowledged by then; an *UncountedError
// says that more may have been.
func (q *Queues) Replay(ctx context.Context, logs Logs, ledger Ledger, o ReplayOptions) (Replayed, error) {
	r := &replaying{ReplayOptions: &o, queues: q, ledger: ledger, seen: recent{most: remembered}, pace: newPacer(max(o.Rate, 0.1)), began: time.Now(),
		result: Replayed{DryRun: !o.Do, Skipped: make(map[string]int), Topics: []string{}, Delay: q.config.Tier.Delay.Seconds(), Shed: []ShedRecord{}}}
	if err := o.Check(); err != nil {
		return r.result, err
	}
	lanes, err := q.Lanes(o.Lanes...)
	if err != nil {
		return r.result, err
	}
	for i := range lanes {
		if err := r.lane(ctx, logs, &lanes[i]); err != nil {
			return r.result, err
		}
	}
	return r.result, nil
}

// replaying is one run over all lanes. It belongs to one goroutine.
type replaying struct {
	*ReplayOptions
	queues *Queues
	ledger Ledger
	seen   recent // ids that were replayed
	pace   pacer
	began  time.Time
	taken  int // of Limit
	of     int64
	result Replayed
}

// lane replays one lane, and notes that it does.
func (r *replaying) lane(ctx context.Context, logs Logs, lane *Lane) (err error) {
	topics := []string{lane.Topic, kafka.RetryTopic(lane.Topic, r.queues.config.Tier.Name)}
	if r.Do {
		topics = append(topics, kafka.AuditTopic(lane.Topic))
	}
	if err := r.queues.broker.Reach(ctx, topics...); err != nil {
		return err
	}
	r.result.Topics = append(r.result.Topics, topics[1])
	log, err := logs.OpenLog(lane.Topic)
	if err != nil {
		return err
	}
	defer log.Close()
	extent, err := log.Between(ctx, r.Since, r.Until)
	if err != nil {
		return err
	}
	r.of += extent.Records()
	note := kafka.Replay{At: r.began, By: r.By, Since: r.Since, Until: r.Until}
	if r.Do {
		if err := log.Note(ctx, note); err != nil {
			return err
		}
		before := r.result.Replayed
		defer func() {
			note.Sent, note.Done = r.result.Replayed-before, err == nil
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
			defer cancel()
			if noted := log.Note(within, note); err == nil {
				err = noted
			}
		}()
	}
	return r.read(ctx, log, lane, extent)
}

// read goes through the records of an extent in groups.
func (r *replaying) read(ctx context.Context, log Log, lane *Lane, extent kafka.Extent) error {
	group := make([]record, 0, replayRead)
	err := log.Read(ctx, extent, func(d *kafka.DeadLetter) error {
		if r.Limit > 0 && r.taken == r.Limit {
			return errEnough
		}
		r.result.Read++
		rec := newRecord(lane, d, nil)
		if rec.defect == nil && among(r.Apps, rec.message.App) && among(r.Senders, rec.message.SenderID) && among(r.IDs, rec.message.ID) {
			group = append(group, rec)
		}
		if len(group) < replayRead {
			return ctx.Err()
		}
		err := r.replay(ctx, log, group)
		group = group[:0]
		return err
	})
	if err == nil {
		err = r.replay(ctx, log, group)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// replay looks up a group of records and sends those that are SHED.
func (r *replaying) replay(ctx context.Context, log Log, group []record) error {
	if len(group) == 0 {
		return nil
	}
	ids := make([]string, len(group))
	for i := range group {
		ids[i] = group[i].message.ID
	}
	rows, err := r.ledger.Read(ctx, ids)
	if err != nil {
		return fmt.Errorf("looking up what was shed: %w", err)
	}
	var shed []*kafka.DeadLetter
	for i := range group {
		rec := &group[i]
		row, ok := shedRow(rows[i], push.UserHash(owner(&rec.message)))
		if !ok {
			continue
		}
		r.result.Matched++
		if why := r.skip(rec, time.Now()); why != "" {
			r.result.Skipped[why]++
			continue
		}
		if r.Limit > 0 && r.taken == r.Limit {
			r.result.Matched--
			break
		}
		r.taken++
		r.seen.add(rec.message.ID)
		rec.Reason, rec.Hops = row.Reason, int(row.Step)
		if len(r.result.Shed) < r.List {
			r.result.Shed = append(r.result.Shed, rec.shed())
		}
		shed = append(shed, rec.DeadLetter)
	}
	return r.send(ctx, log, shed)
}

// shedRow is the latest row of a user's notification whose outcome is SHED.
func shedRow(rows []push.Row, user uint64) (latest push.Row, ok bool) {
	own, _ := push.OwnRows(rows, user)
	if h := push.NewHistory(own); h.Outcome() != push.OutcomeShed {
		return latest, false
	}
	for i := range own {
		if i == 0 || own[i].Step > latest.Step {
			latest = own[i]
		}
	}
	return latest, true
}

// owner is whose notification it is in the status rows.
func owner(m *push.Message) string {
	if m.UserID != "" || m.Device.Token == "" {
		return m.UserID
	}
	return push.DeviceHash(m.Device.Platform, m.Device.Token)
}

// skip says why a shed notification is not replayed; empty = it is.
func (r *replaying) skip(rec *record, now time.Time) string {
	c := &r.queues.config
	if r.seen.has(rec.message.ID) {
		return SkipCopy
	}
	if takenUp := now.Add(c.Tier.Delay); rec.expired(takenUp) {
		return SkipExpired
	}
	if len(c.Apps) > 0 && !among(c.Apps, rec.message.App) {
		return SkipUnknownApp
	}
	return ""
}

// shed is the record as an operator sees it. It shares no memory with the record.
func (r *record) shed() ShedRecord {
	s := ShedRecord{Place: r.String(), Time: r.Timestamp.UTC(), ID: strings.Clone(r.message.ID), App: strings.Clone(r.message.App), Reason: r.Reason, ExpiresAt: utc(r.expires())}
	if p := r.message.Priority; p != 0 {
		s.Priority = p.String()
	}
	return s
}

// send sends records in groups of the pace, and waits for their acknowledgement.
func (r *replaying) send(ctx context.Context, log Log, records []*kafka.DeadLetter) error {
	for len(records) > 0 {
		group := records[:min(len(records), r.pace.group)]
		records = records[len(group):]
		if r.Do {
			if err := r.pace.wait(ctx, len(group)); err != nil {
				return err
			}
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
			err := log.Redrive(within, group, r.queues.config.Tier.Name)
			cancel()
			if err != nil {
				return &UncountedError{Err: err, Letters: len(group)}
			}
		}
		r.result.Replayed += len(group)
	}
	if r.Progress != nil {
		r.Progress(Replaying{r.result.Read, r.result.Replayed, r.of})
	}
	return ctx.Err()
}
