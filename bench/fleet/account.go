//go:build unix

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// Report is what became of all records that were produced.
type Report struct {
	Produced      int
	Notifications int                  // produced without the copies
	Outcomes      map[push.Outcome]int // of notifications
	Reasons       map[string]int       // of status rows that are final and not DELIVERED, without detail
	DeadLetters   map[string]int       // records in the DLQ, by reason
	Pushes        int                  // accepted by the providers
	Resent        int                  // accepted beyond the first, for the same device
	Missed        int                  // not accepted by a device of a notification that was delivered to another
	Lost          int                  // notifications without a final outcome
	Wrong         int                  // all else that disagrees

	differences []string
}

// AccountOptions say what else must hold.
type AccountOptions struct {
	// Cap is how many notifications a user with Limited records gets, exactly,
	// but for those of its own that ended UNKNOWN; 0 = not compared.
	Cap int
}

// Err is nil when nothing is lost and everything agrees. Resent is not an
// error here: a crash may repeat pushes, and the caller knows how many.
func (r *Report) Err() error {
	if r.Lost == 0 && r.Wrong == 0 {
		return nil
	}
	const enough = 20 // to look into it
	return fmt.Errorf("%d of %d notifications are lost, %d things are wrong:\n  %s\n%s",
		r.Lost, r.Notifications, r.Wrong, strings.Join(r.differences[:min(enough, len(r.differences))], "\n  "), r)
}

// Differences are all that is lost or wrong, in words; the first 10,000.
func (r *Report) Differences() []string { return r.differences }

// String is the report in a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d records, %d notifications, %d pushes accepted, %d of them again\n", r.Produced, r.Notifications, r.Pushes, r.Resent)
	for _, o := range slices.Sorted(maps.Keys(r.Outcomes)) {
		fmt.Fprintf(&b, "%8d %s\n", r.Outcomes[o], o)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Reasons)) {
		fmt.Fprintf(&b, "%8d rows %s\n", r.Reasons[reason], reason)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.DeadLetters)) {
		fmt.Fprintf(&b, "%8d in the DLQ: %s\n", r.DeadLetters[reason], reason)
	}
	return b.String()
}

// differ notes what disagrees.
func (r *Report) differ(format string, args ...any) {
	r.Wrong++
	r.note(format, args...)
}

// note keeps a difference, unless there are too many already.
func (r *Report) note(format string, args ...any) {
	const most = 10_000
	if len(r.differences) < most {
		r.differences = append(r.differences, fmt.Sprintf(format, args...))
	}
}

// placed is a produced record where it stands in the topic.
type placed struct {
	Fact
	id      string // that its status rows stand under
	origin  string // as a dead letter names it
	value   []byte
	targets *crowd.Targets // that it must reach if it is delivered; nil = not known
}

// Account reads back everything that is left of the records produced so far,
// and holds it together: the lane's topic, the status rows, the DLQ, the
// simulator's ledger and the devices that the crowd's users have. It is called
// when all is done (AwaitDone); the error is about asking, what was found is in
// the report.
func (f *Fleet) Account(ctx context.Context, o AccountOptions) (*Report, error) {
	r := &Report{Produced: len(f.facts), Outcomes: map[push.Outcome]int{}, Reasons: map[string]int{}, DeadLetters: map[string]int{}}
	records, err := f.readBack(ctx, r)
	if err != nil {
		return nil, err
	}
	notifications := slices.DeleteFunc(slices.Clone(records), func(p placed) bool { return p.Want.Copy || p.id == "" })
	r.Notifications = len(notifications)
	rows, err := f.statusOf(ctx, notifications)
	if err != nil {
		return nil, err
	}
	pushes, refused := f.pushes(r)
	limited := map[string]*spent{} // by key
	for i := range notifications {
		n := &notifications[i]
		outcome := r.check(n, rows[i], pushes[n.id])
		r.checkDevices(n, rows[i], pushes[n.id], refused)
		delete(pushes, n.id)
		if n.Want.Limited {
			if limited[n.Key] == nil {
				limited[n.Key] = new(spent)
			}
			limited[n.Key].add(outcome)
		}
	}
	for id := range pushes {
		r.differ("%s was pushed and never produced", id)
	}
	if o.Cap > 0 {
		r.checkCap(o.Cap, limited)
	}
	return r, f.checkDLQ(ctx, r, records, rows, notifications)
}

// readBack reads the lane's topic: each acknowledged record must be there
// once.
func (f *Fleet) readBack(ctx context.Context, r *Report) ([]placed, error) {
	found := make([]placed, len(f.facts))
	topic := f.topic()
	err := ReadTopic(ctx, f.kafka, topic, func(rec kafka.Record) {
		n, err := strconv.Atoi(rec.Headers[headerNumber])
		switch {
		case err != nil || n < 0 || n >= len(found):
			r.differ("%s/%d/%d was not acknowledged", topic, rec.Partition, rec.Offset)
			return
		case found[n].id != "":
			r.differ("%s/%d/%d is in the topic twice", topic, rec.Partition, rec.Offset)
			return
		}
		p := placed{Fact: f.facts[n], value: rec.Value, origin: fmt.Sprintf("%s/%d/%d", topic, rec.Partition, rec.Offset)}
		var m push.Message
		decode.Message(rec.Value, &m) // an unusable record has a place instead of an id
		if p.id = strings.Clone(m.ID); p.id == "" || p.Want.Reason == push.IDReused {
			p.id = push.PlaceID(topic, rec.Partition, rec.Offset)
		}
		p.targets = f.targetsOf(&m)
		found[n] = p
	})
	for n := range found {
		if err == nil && found[n].id == "" {
			r.differ("record %d is not in %s any more", n, topic)
		}
	}
	return found, err
}

// ReadTopic hands out all records that a topic holds now, partition by
// partition.
func ReadTopic(ctx context.Context, o kafka.Options, topic string, each func(kafka.Record)) error {
	follower, err := kafka.NewFollower(o, topic, nil)
	if err != nil {
		return err
	}
	defer follower.Close()
	extent, err := follower.Extent(ctx, time.Time{}, time.Time{})
	if err != nil {
		return err
	}
	return follower.ReadExtent(ctx, extent, func(r kafka.Record) error {
		each(r)
		return nil
	})
}

// statusOf reads the status rows of each notification.
func (f *Fleet) statusOf(ctx context.Context, ns []placed) ([][]push.Row, error) {
	ids := make([]string, len(ns))
	for i := range ns {
		ids[i] = ns[i].id
	}
	store, done, err := f.OpenStatus(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return store.Read(ctx, ids)
}

// OpenStatus opens the store that the workers' status rows are in; done closes
// it.
func (f *Fleet) OpenStatus(ctx context.Context) (store StatusReader, done func(), err error) {
	if f.options.Status != nil {
		return f.options.Status, func() {}, nil
	}
	options, err := wiring.Cassandra(f.Config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	options.Timeout = time.Minute
	opened, err := status.OpenCassandra(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	return opened, opened.Close, nil
}

// pushes are the ledger's entries by notification, and the devices of which a
// provider has refused anything.
func (f *Fleet) pushes(r *Report) (byID map[string][]sim.Entry, refused map[string]bool) {
	byID, refused = make(map[string][]sim.Entry), make(map[string]bool)
	f.Sim.Ledger().Each(func(e sim.Entry) bool {
		byID[e.ID] = append(byID[e.ID], e)
		r.Pushes += e.Accepted
		r.Resent += max(0, e.Accepted-1)
		if e.Refused > 0 {
			refused[e.Device] = true
		}
		return true
	})
	return byID, refused
}

// check compares one notification's rows with what was meant and with what
// the providers saw.
func (r *Report) check(n *placed, rows []push.Row, pushes []sim.Entry) push.Outcome {
	h := &push.History{Rows: rows}
	outcome := h.Outcome()
	r.Outcomes[outcome]++
	if outcome == push.NoRows || outcome == push.OutcomeOpen {
		r.Lost++
		r.note("%s (%s) has no final outcome: %s%s", n.id, n.origin, describe(rows), describePushes(pushes))
		return outcome
	}
	wrong := func(why string) {
		r.differ("%s (%s) %s: %s%s", n.id, n.origin, why, describe(rows), describePushes(pushes))
	}
	if w, of := n.Want.Outcomes, n.livingOutcome(rows, outcome); len(w) > 0 && !slices.Contains(w, of) {
		wrong(fmt.Sprintf("ended %s and not %v", of, w))
	}
	delivered := map[string]bool{}
	for i := range rows {
		row := &rows[i]
		reason, detail, _ := strings.Cut(row.Reason, ":")
		switch {
		case row.State == push.StateDelivered:
			delivered[row.Device] = true
		case row.State.Final():
			r.Reasons[reason]++
			if n.Want.Reason != "" && reason != string(n.Want.Reason) {
				wrong(fmt.Sprintf("has not the reason %s", n.Want.Reason))
			} else if n.Want.Detail != "" && detail != n.Want.Detail {
				wrong(fmt.Sprintf("has not the detail %s", n.Want.Detail))
			}
		}
		if state, _ := h.DeviceState(row.Device); !state.Final() && (row.Device != "" || !h.HasDevices()) {
			wrong("has a device that is still open")
		}
	}
	for _, e := range pushes {
		switch {
		case n.Want.Unsent:
			wrong("was never to be sent")
		case (e.Accepted > 0) != delivered[e.Device]:
			wrong(fmt.Sprintf("was accepted %d times for device %s, and its row says otherwise", e.Accepted, e.Device))
		}
		delete(delivered, e.Device)
	}
	for device := range delivered {
		wrong("is DELIVERED to a device " + device + " that the provider never saw")
	}
	return outcome
}

// checkDLQ: what ended DEAD_LETTERED has a copy there with its reason, key,
// place and, unless it was too large, value; and nothing else has.
func (f *Fleet) checkDLQ(ctx context.Context, r *Report, records []placed, rows [][]push.Row, notifications []placed) error {
	byOrigin := make(map[string]*placed, len(records))
	for i := range records {
		byOrigin[records[i].origin] = &records[i]
	}
	reasons, explained := map[string]string{}, map[string]bool{} // by origin
	err := ReadTopic(ctx, f.kafka, kafka.DLQTopic(f.topic()), func(rec kafka.Record) {
		reason, origin := rec.Headers["pf-reason"], rec.Headers["pf-origin"]
		r.DeadLetters[reason]++
		p := byOrigin[origin]
		switch {
		case p == nil:
			r.differ("a dead letter (%s) has the origin %q, where nothing was produced", reason, origin)
			return
		case p.Want.Reason != "" && reason != string(p.Want.Reason):
			r.differ("the dead letter of %s has the reason %q and not %s", origin, reason, p.Want.Reason)
		case p.Want.Detail != "" && rec.Headers["pf-detail"] != p.Want.Detail:
			r.differ("the dead letter of %s (%s) has the detail %q and not %q", origin, reason, rec.Headers["pf-detail"], p.Want.Detail)
		case string(rec.Key) != p.Key || reason != string(push.TooLarge) && string(rec.Value) != string(p.value):
			r.differ("the dead letter of %s (%s) is not the record that was produced", origin, reason)
		}
		reasons[origin] = reason
	})
	if err != nil {
		return err
	}
	for i := range notifications {
		n := &notifications[i]
		for _, row := range rows[i] {
			if row.State != push.StateDeadLettered {
				continue
			}
			code, _, _ := strings.Cut(row.Reason, ":")
			if got, ok := reasons[n.origin]; !ok || got != code {
				r.differ("%s is DEAD_LETTERED(%s), and the DLQ has %q of it", n.origin, row.Reason, got)
			}
			explained[n.origin] = true
		}
	}
	for origin, reason := range reasons {
		if explained[origin] {
			continue
		}
		r.differ("%s is in the DLQ (%s) and its status does not say so", origin, reason)
	}
	return nil
}

func describe(rows []push.Row) string {
	if len(rows) == 0 {
		return "no rows"
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "[%s step %d %s %s at %s] ", row.Device, row.Step, row.State, row.Reason, row.At.Format("15:04:05.000"))
	}
	return b.String()
}

func describePushes(es []sim.Entry) string {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, "; provider: device %s accepted %d, refused %d, last %s", e.Device, e.Accepted, e.Refused, e.Last)
	}
	return b.String()
}
