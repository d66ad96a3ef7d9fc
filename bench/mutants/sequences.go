//go:build unix

package mutants

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/shards"
)

// Scenarios in which one thing happens behind another.

// stopTwice tells a worker to end in order, with its windows full, and has
// another one go on; and again.
func stopTwice(ctx context.Context, w *world, planted []string) error {
	for n := range 2 {
		p, err := w.worker(ctx, planted...)
		if err != nil {
			return err
		}
		if err := w.AwaitAccepted(ctx, uint64(200+500*n)); err != nil {
			return err
		}
		stop := invariants.Event{Kind: "stop", Target: "worker", Start: time.Now(), Orderly: true}
		status, err := p.Term(ctx)
		if err != nil {
			return err
		}
		if status != 0 && planted == nil {
			return fmt.Errorf("a worker that was told to end did so with status %d%s", status, p.Tail())
		}
		stop.End = time.Now()
		w.events = append(w.events, stop)
	}
	return oneWorker(ctx, w, planted)
}

// recheckSoon reads again what has waited for a second.
func recheckSoon(c *configs.Config) {
	c.Send.Recheck, c.Send.Deadline, c.Send.Drain = time.Second, 5*time.Second, 12*time.Second
	c.Kafka.RebalanceTimeout = 20 * time.Second
}

// leavers chooses the users who opt out later: every third who gets something.
// What they get may end as either.
func leavers(w *world) {
	w.leaves = make(map[string]bool)
	others := 0
	for i := range w.produce {
		r := &w.produce[i]
		if !slices.Equal(r.Want.Outcomes, []push.Outcome{push.OutcomeDelivered}) {
			continue
		}
		user := string(r.Key)
		if _, known := w.leaves[user]; !known {
			w.leaves[user] = others%3 == 0
			others++
		}
		if w.leaves[user] {
			r.Want.Outcomes = append(slices.Clone(r.Want.Outcomes), push.OutcomeSuppressed)
		}
	}
}

func optOutLater(ctx context.Context, w *world, planted []string) error {
	if err := oneWorker(ctx, w, planted); err != nil {
		return err
	}
	if err := w.AwaitAccepted(ctx, 50); err != nil {
		return err
	}
	var ids []string
	for id, leaves := range w.leaves {
		if leaves {
			ids = append(ids, id)
		}
	}
	if err := w.OptOut(ctx, ids); err != nil {
		return err
	}
	// What was read just before is sent for so long.
	w.left = time.Now().Add(w.Config.Send.Recheck)
	return nil
}

// uuid7 is the part of an id that carries its time.
var uuid7 = regexp.MustCompile(`"id":"[0-9a-f]{8}-[0-9a-f]{4}-7`)

// mintedYesterday gives every id the time of a day ago.
func mintedYesterday(w *world) {
	ms := time.Now().Add(-24 * time.Hour).UnixMilli()
	for i := range w.produce {
		// Ids keep apart by what follows the time.
		w.produce[i].Value = uuid7.ReplaceAll(w.produce[i].Value, fmt.Appendf(nil, `"id":"%08x-%04x-7`, ms>>16, ms&0xffff))
	}
}

// comesAgain lets everything be done, lets the filters forget it, and appends
// it once more to the same worker, which has confirmed its first W records and
// now believes its filter.
func comesAgain(ctx context.Context, w *world, planted []string) error {
	if err := oneWorker(ctx, w, planted); err != nil {
		return err
	}
	if err := w.AwaitDone(ctx); err != nil {
		return err
	}
	w.forget()
	if err := w.DeclareNew(ctx); err != nil {
		return err
	}
	var again []fleet.Record
	for _, r := range w.produce {
		if len(r.Want.Outcomes) > 0 && !r.Want.Unsent {
			r.Want = fleet.Want{Copy: true}
			again = append(again, r)
		}
	}
	w.produce = append(w.produce, again...)
	return w.Produce(ctx, again)
}

// forget deletes the filters and all that belongs to them, as two windows do
// that have passed.
func (w *world) forget() {
	prefix, _, _ := strings.Cut(shards.FilterKey(0, 0), "{")
	for _, key := range w.redis.Mini.Keys() {
		if strings.HasPrefix(key, prefix) {
			w.redis.Mini.Del(key)
		}
	}
}

// holdSoon puts aside what waits for a paused route.
func holdSoon(c *configs.Config) {
	c.Gates.HoldAfter, c.Gates.HoldSpan = 200*time.Millisecond, time.Second
}

// held lets Google refuse everything until something is put aside.
func held(ctx context.Context, w *world, planted []string) error {
	usual := w.Sim.Faults(sim.FCM)
	full := usual
	full.TooMany, full.RetryAfter = 1, 3*time.Second
	if err := w.Sim.SetFaults(sim.FCM, full); err != nil {
		return err
	}
	if err := oneWorker(ctx, w, planted); err != nil {
		return err
	}
	if err := w.AwaitAccepted(ctx, 50); err != nil {
		return err
	}
	return w.Sim.SetFaults(sim.FCM, usual)
}

// expiresSoon is a crowd whose records half expire before the last attempt.
func expiresSoon(o *crowd.Options) { o.Soon, o.Within = 0.5, 5*time.Second }

// checkLate: nothing is accepted after its expires_at, and nothing for a user
// who had opted out by then.
func (w *world) checkLate() (found []Finding) {
	type message struct {
		expires time.Time
		user    string
	}
	messages := make(map[string]message)
	for i := range w.produce {
		var m push.Message
		if decode.Message(w.produce[i].Value, &m); m.ID != "" {
			messages[m.ID] = message{m.ExpiresAt, string(w.produce[i].Key)}
		}
	}
	const slack = time.Second // a busy machine's, from the worker's look to the simulator's
	for _, s := range w.sends.all() {
		m := messages[s.ID]
		if !s.Accepted {
			continue
		}
		if !m.expires.IsZero() && s.At.After(m.expires.Add(slack)) {
			found = append(found, Finding{Invariant: Forbidden, Text: fmt.Sprintf("%s was sent %v after it had expired", s.ID, s.At.Sub(m.expires))})
		}
		if w.leaves[m.user] && !w.left.IsZero() && s.At.After(w.left.Add(slack)) {
			found = append(found, Finding{Invariant: Forbidden, Text: fmt.Sprintf("%s was sent %v after its user had opted out", s.ID, s.At.Sub(w.left))})
		}
	}
	return found
}

// append appends what a scenario produces.
func (w *world) append(ctx context.Context, s *scenario) error {
	if s.kept {
		return nil
	}
	if !s.whole {
		return w.Produce(ctx, w.produce)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Addrs()...), kgo.TransactionalID("mutants"))
	if err != nil {
		return err
	}
	defer client.Close()
	last := w.Config.Batch.Records // nobody commits a mark at the end of a log
	whole := w.produce[:len(w.produce)-last]
	for i := range whole {
		if err := w.ProduceBy(whole[i:i+1], func(rs []kafka.Record) error { return appendWhole(ctx, client, rs) }); err != nil {
			return err
		}
		w.marks++
	}
	return w.Produce(ctx, w.produce[len(whole):])
}

// appendWhole appends records in a transaction of their own.
func appendWhole(ctx context.Context, client *kgo.Client, rs []kafka.Record) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for _, r := range rs {
		k := &kgo.Record{Topic: fleet.Topic, Key: r.Key, Value: r.Value}
		for name, value := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		if err := client.ProduceSync(ctx, k).FirstErr(); err != nil {
			return err
		}
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}
