//go:build unix

package mutants

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/wiring"
)

// Invariant names what a run violated, as README.md lists them.
type Invariant string

// The invariants. I1 to I7 are those of the chaos harness.
const (
	Lost      Invariant = "I1"   // an acknowledged notification has not the final outcome it was made for
	Unproven  Invariant = "I2"   // DELIVERED, and no provider accepted it; or the reverse
	Ahead     Invariant = "I3"   // a committed offset passes a record without a durable outcome
	Repeated  Invariant = "I4"   // a second push that no crash explains
	Rewound   Invariant = "I5"   // a committed offset went back
	Forbidden Invariant = "I6"   // sent although expired or opted out
	Stuck     Invariant = "I7"   // not all is committed in time
	Capped    Invariant = "cap"  // a user got more or less than the limit allows
	Exposed   Invariant = "open" // more is accepted without a durable row than the windows hold
	Hasty     Invariant = "wait" // a push was tried again sooner than its tier or its provider said
)

// Finding is one violation.
type Finding struct {
	Invariant Invariant
	Text      string

	push placeOfPush // what it is about, of an Unproven
}

// killed is what the providers had accepted when a worker died, or was stopped
// as if it had.
type killed struct {
	at       time.Time
	accepted map[placeOfPush]int
	resumed  time.Time // when it went on; zero = it died
}

// placeOfPush is a notification on a device.
type placeOfPush struct{ id, device string }

// accepted is what the providers have accepted so far.
func (w *world) accepted() map[placeOfPush]int {
	counts := make(map[placeOfPush]int)
	w.Sim.Ledger().Each(func(e sim.Entry) bool {
		if e.Accepted > 0 {
			counts[placeOfPush{e.ID, e.Device}] = e.Accepted
		}
		return true
	})
	return counts
}

// once says that the lane sends at most once.
func (w *world) once() bool { return w.Config.Lanes[0].Once() }

// settle is how long after a death the simulator may still be reading what the
// dead one's kernel had taken.
const settle = 250 * time.Millisecond

// died notes a worker's death, which has happened, for check.
func (w *world) died() {
	at := time.Now()
	time.Sleep(settle)
	w.deaths = append(w.deaths, killed{at: at, accepted: w.accepted()})
}

// check waits until all is done and holds everything that is left behind
// against what was meant. The error is about asking; what is wrong is in the
// findings.
func (w *world) check(ctx context.Context, within time.Duration) ([]Finding, error) {
	var found []Finding
	waiting, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v", within))
	err := w.AwaitDone(waiting)
	cancel()
	if err != nil {
		if waiting.Err() == nil || ctx.Err() != nil {
			return nil, err
		}
		found = append(found, Finding{Invariant: Stuck, Text: firstLine(err.Error())})
	}
	if w.once() && len(found) == 0 {
		if err := w.awaitResults(ctx, within); err != nil {
			return nil, err
		}
	}
	report, err := w.Account(ctx, fleet.AccountOptions{Cap: w.people.Cap})
	if err != nil {
		return nil, err
	}
	w.report = report
	found = append(found, w.excuseUnknown(classify(report.Differences()))...)
	found = append(found, w.checkRepeats(report)...)
	found = append(found, w.checkExposed()...)
	found = append(found, w.checkWaits()...)
	found = append(found, w.checkUnknown()...)
	found = append(found, w.checkLate()...)
	ahead, err := w.checkCommits(ctx)
	return append(found, ahead...), err
}

// awaitResults waits until nothing is under way in a lane that commits before it
// sends, where all may be committed and a result still be about to hand over a
// retry: until no intent is open, all is committed after that, and no further
// intent has come meanwhile. An intent that stays open is found by the
// accounting.
func (w *world) awaitResults(ctx context.Context, within time.Duration) error {
	const most = 8 * time.Second // without a new intent
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v", within))
	defer cancel()
	before, since := -1, time.Now()
	for {
		all, open := w.store.intents()
		if all != before {
			before, since = all, time.Now()
		} else if time.Since(since) > most {
			return nil
		}
		if open == 0 {
			if err := w.AwaitDone(ctx); err != nil {
				return err
			}
			if again, stillOpen := w.store.intents(); again == all && stillOpen == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// classify names the invariant of each difference of the accounting.
func classify(differences []string) (found []Finding) {
	for _, line := range differences {
		f := Finding{Invariant: Lost, Text: line}
		switch {
		case strings.Contains(line, " did not reach device "): // whatever its rows say
		case strings.Contains(line, "who may get"), strings.Contains(line, " SUPPRESSED limited:"):
			f.Invariant = Capped
		case strings.Contains(line, "was never to be sent"):
			f.Invariant = Forbidden
		case strings.Contains(line, "is DELIVERED to a device"), strings.Contains(line, "and its row says otherwise"):
			f.Invariant = Unproven
			f.push.id, _, _ = strings.Cut(line, " ")
			_, device, _ := strings.Cut(line, "for device ")
			f.push.device, _, _ = strings.Cut(device, ",")
		}
		found = append(found, f)
	}
	return found
}

// excuseUnknown leaves out what a lane allows that sends nothing again which may
// have arrived: a push that was accepted and is UNKNOWN, because its answer was
// lost, or its intent had no result when the worker died. It excuses this push
// and nothing else.
func (w *world) excuseUnknown(found []Finding) []Finding {
	if !w.Config.Lanes[0].DropsAmbiguous() {
		return found
	}
	return slices.DeleteFunc(found, func(f Finding) bool {
		return f.Invariant == Unproven && f.push != (placeOfPush{}) && w.store.unknown(f.push.id, f.push.device)
	})
}

// checkRepeats: without a death no push is accepted twice. With one, what was
// durable is not, and of the rest no more than the bound; none at all in a lane
// that sends at most once.
func (w *world) checkRepeats(r *fleet.Report) (found []Finding) {
	switch {
	case w.once() && r.Resent > 0:
		found = append(found, Finding{Invariant: Repeated, Text: fmt.Sprintf("%d pushes were accepted again in a lane that sends at most once", r.Resent)})
	case r.Resent > len(w.deaths)*killBound:
		found = append(found, Finding{Invariant: Repeated, Text: fmt.Sprintf("%d pushes were accepted again, after %d deaths that may repeat %d each", r.Resent, len(w.deaths), killBound)})
	}
	now := w.accepted()
	for n, d := range w.deaths {
		for p, before := range d.accepted {
			if now[p] == before {
				continue
			}
			delivered := w.store.deliveredAt(p.id, p.device)
			if !delivered.IsZero() && delivered.Before(d.at) {
				found = append(found, Finding{Invariant: Repeated, Text: fmt.Sprintf("%s on device %s was durably DELIVERED before death %d, and accepted %d times after it", p.id, p.device, n+1, now[p]-before)})
			}
		}
	}
	return found
}

// tracked is a record whose commit is compared with its outcome.
type tracked struct {
	partition push.Partition
	offset    int64
	id        string
	step      int16
	devices   []string // that it names; none = all
}

// checkCommits: committed offsets only grow, and pass a record only once the
// rows that it wrote are durable.
func (w *world) checkCommits(ctx context.Context) (found []Finding, err error) {
	records, err := w.records(ctx)
	if err != nil {
		return nil, err
	}
	durable := make([]time.Time, len(records))
	for i, r := range records {
		durable[i] = w.store.endedAt(r.id, r.step, r.devices, w.once())
	}
	for p, list := range w.commits.all() {
		for i, c := range list {
			from := int64(0)
			if i > 0 {
				from = list[i-1].offset
			}
			if c.offset < from {
				found = append(found, Finding{Invariant: Rewound, Text: fmt.Sprintf("%s/%d was committed to %d and then to %d", p.Topic, p.ID, from, c.offset)})
			}
			for j, r := range records {
				if r.partition != p || r.offset < from || r.offset >= c.offset {
					continue
				}
				if durable[j].IsZero() || durable[j].After(c.at) {
					found = append(found, Finding{Invariant: Ahead, Text: fmt.Sprintf("%s/%d was committed to %d at %s before %s at %d had a durable outcome:%s", p.Topic, p.ID, c.offset, c.at.Format(time.StampMilli), r.id, r.offset, w.store.describe(r.id))})
				}
			}
		}
	}
	return found, nil
}

// records are those of the lane's topic and of its retry and deferral topics.
func (w *world) records(ctx context.Context) (list []tracked, err error) {
	options, err := wiring.Kafka(w.Config, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	for _, topic := range wiring.TopicNames(w.Config) {
		if topic != fleet.Topic && !strings.HasPrefix(topic, fleet.Topic+".retry.") && !strings.HasPrefix(topic, fleet.Topic+".defer.") {
			continue
		}
		err := fleet.ReadTopic(ctx, options, topic, func(r kafka.Record) {
			t := tracked{partition: push.Partition{Topic: topic, ID: r.Partition}, offset: r.Offset}
			var m push.Message
			decode.Message(r.Value, &m)
			if t.id = strings.Clone(m.ID); t.id == "" {
				t.id = push.PlaceID(topic, r.Partition, r.Offset)
			}
			if topic != fleet.Topic {
				attempt, _ := strconv.Atoi(r.Headers["pf-attempt"])
				hops, _ := strconv.Atoi(r.Headers["pf-hops"])
				t.step = int16(attempt + hops)
				if named := r.Headers["pf-devices"]; named != "" {
					t.devices = strings.Split(named, ",")
				}
			}
			list = append(list, t)
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// violated are the invariants that were violated, in order, each once.
func violated(found []Finding) []Invariant {
	var names []Invariant
	for _, f := range found {
		names = append(names, f.Invariant)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
