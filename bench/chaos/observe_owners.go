//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// owners asks every second the group's coordinator whose each of the lane's
// partitions is, and each worker why those that it has stand still.
type owners struct {
	world  *world
	client *kgo.Client
	admin  *kadm.Client
	group  string
	topic  string

	mu       sync.Mutex
	latest   [partitions]string    // guarded by mu, as all that follows
	asked    bool                  // latest is what the coordinator said
	owners   []invariants.Owner    // changes only
	declared []invariants.Declared //
	last     error                 // why the newest question to the coordinator failed
}

func newOwners(w *world, group, topic string) (*owners, error) {
	client, err := w.kafkaClient(kgo.RequestRetries(0), kgo.RetryTimeout(2*time.Second), kgo.MetadataMinAge(time.Second))
	if err != nil {
		return nil, fmt.Errorf("owners: %w", err)
	}
	return &owners{world: w, client: client, admin: kadm.NewClient(client), group: group, topic: topic}, nil
}

// ownersPause is how often a worker looks at its partitions itself.
const ownersPause = time.Second

// run asks until ctx ends.
func (o *owners) run(ctx context.Context) {
	ticker := time.NewTicker(ownersPause)
	defer ticker.Stop()
	for {
		err := o.ask(ctx)
		o.mu.Lock()
		if ctx.Err() == nil {
			o.last = err
		}
		o.mu.Unlock()
		o.listen(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// ask asks the coordinator. While the group finds out who has what, each
// partition stays whose it was.
func (o *owners) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	groups, err := o.admin.DescribeGroups(ctx, o.group)
	if err != nil {
		return fmt.Errorf("asking who is in %s: %w", o.group, err)
	}
	g := groups[o.group]
	if g.Err != nil {
		return fmt.Errorf("asking who is in %s: %w", o.group, g.Err)
	}
	if whose, settled := assigned(&g, o.topic); settled {
		o.note(time.Now(), whose)
	}
	return nil
}

// assigned is whose each partition of a topic is; settled is false while the
// group finds that out.
func assigned(g *kadm.DescribedGroup, topic string) (whose [partitions]string, settled bool) {
	switch g.State {
	case "Stable", "Empty", "Dead":
	default:
		return whose, false
	}
	for i := range g.Members {
		m := &g.Members[i]
		a, ok := m.Assigned.AsConsumer()
		if !ok {
			continue
		}
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				if t.Topic == topic && int(p) < len(whose) {
					whose[p] = m.ClientID
				}
			}
		}
	}
	return whose, true
}

func (o *owners) note(now time.Time, whose [partitions]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, id := range whose {
		if o.asked && o.latest[p] == id {
			continue
		}
		e := invariants.Owner{At: now, Partition: invariants.Partition{Topic: o.topic, ID: int32(p)}}
		for _, s := range o.world.workers() {
			if clientID(s.name) == id {
				e.Worker = s.name
			}
		}
		o.owners = append(o.owners, e)
	}
	o.latest, o.asked = whose, true
}

// listen asks every worker. One that does not answer says nothing.
func (o *owners) listen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, s := range o.world.workers() {
		p := s.process()
		if p == nil || !p.Running() {
			continue
		}
		asking.Go(func() {
			began := time.Now() // what it says is of then, or of a moment before
			if m, err := p.Metrics(ctx); err == nil {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.declared = append(o.declared, declaredIn(m, s.name, began)...)
			}
		})
	}
	asking.Wait()
}

// declaredIn are the reasons that a worker's metrics have.
func declaredIn(m fleet.Metrics, worker string, at time.Time) (list []invariants.Declared) {
	for sample, seconds := range m {
		labels, ok := strings.CutPrefix(sample, "push_partition_stall_seconds{")
		if !ok {
			continue
		}
		id, err := strconv.Atoi(label(labels, "partition"))
		if err != nil {
			continue
		}
		list = append(list, invariants.Declared{At: at, Worker: worker, Reason: label(labels, "reason"), Since: at.Add(-time.Duration(seconds * float64(time.Second))),
			Partition: invariants.Partition{Topic: label(labels, "topic"), ID: int32(id)}})
	}
	return list
}

// label is the value of one of a sample's labels, none of which has a quote or a
// comma in its value.
func label(labels, name string) string {
	for pair := range strings.SplitSeq(strings.TrimSuffix(labels, "}"), ",") {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// close ends the client and seals both ledgers, if the coordinator was asked to
// the end.
func (o *owners) close() (invariants.Ledger[invariants.Owner], invariants.Ledger[invariants.Declared]) {
	o.client.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.last
	if err == nil && !o.asked {
		err = errors.New("the group never was settled")
	}
	if err != nil {
		return invariants.Ledger[invariants.Owner]{Entries: o.owners, Missing: err.Error()}, invariants.Seal(o.declared)
	}
	return invariants.Seal(o.owners), invariants.Seal(o.declared)
}
