//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// rewind is what an operator does by hand: all workers are told to end, the
// lane's offsets are set back, and all start again.
func (n *nemesis) rewind(ctx context.Context, a Action) error {
	e := invariants.Event{Kind: string(Rewind), Target: Workers, Start: time.Now(), Rewinds: true, Stalls: true, Mute: true}
	slots := n.world.workers()
	var ending sync.WaitGroup
	errs := make([]error, len(slots))
	for i, s := range slots {
		s.busy.Lock()
		defer s.busy.Unlock()
		stop := invariants.Event{Kind: string(Stop), Target: s.name, Of: s.name, Orderly: true, Start: time.Now()}
		ending.Go(func() {
			errs[i] = s.term(ctx, n.world.termBudget())
			n.note(stop)
		})
	}
	ending.Wait()
	errs = append(errs, n.setBack(ctx, a))
	if a.Form == 2 {
		wiping, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
		defer cancel()
		errs = append(errs, n.world.redis.Wipe(wiping))
	}
	for _, s := range slots {
		errs = append(errs, s.start())
	}
	n.note(e)
	return errors.Join(errs...)
}

// setBack commits for each of the lane's partitions an offset that is more than
// W back, or the start.
func (n *nemesis) setBack(ctx context.Context, a Action) error {
	client, err := n.world.kafkaClient()
	if err != nil {
		return fmt.Errorf("setting offsets back: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverPatience)
	defer cancel()
	admin, c := kadm.NewClient(client), n.world.fleet.Config
	group, w := c.Kafka.LaneGroup(fleet.Lane), int64(c.Batch.Window())
	at, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return fmt.Errorf("setting offsets back: %w", err)
	}
	back := kadm.Offsets{}
	beyond := int64(0)
	at.Each(func(o kadm.OffsetResponse) {
		to := int64(0)
		if a.Form != 1 {
			to = max(0, o.At-w-w/2)
		}
		beyond = max(beyond, o.At-to)
		back.AddOffset(o.Topic, o.Partition, to, -1)
	})
	if beyond <= w {
		return fmt.Errorf("offsets could be set back by %d only, and W is %d", beyond, w)
	}
	// A group that has no members takes commits from anybody.
	for {
		done, err := admin.CommitOffsets(ctx, group, back)
		if err == nil {
			err = done.Error()
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		hold(ctx, 200*time.Millisecond)
	}
}
