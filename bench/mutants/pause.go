//go:build unix

package mutants

import (
	"context"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/embedded"
)

// pauseOptions let a pause of any length be one in which nothing is overdue:
// what the paused worker has in flight is answered, and not tried again; and
// what it has confirmed, a read that is good for the first tier, is not
// confirmed again.
func pauseOptions(c *configs.Config) {
	c.Send.Deadline, c.Send.Drain = 15*time.Second, 25*time.Second
	c.Kafka.RebalanceTimeout = 40 * time.Second
	c.Retries.Tiers = []time.Duration{time.Minute}
}

// pause stops a worker, with its windows full, until another one owns all of its
// partitions, and lets it go on. Then the coordinator's answers take their time
// to reach it: it cannot know that others do its work, but it can know that it
// has not been heard of for a session.
func pause(ctx context.Context, w *world, planted []string) error {
	paused, err := w.worker(ctx, planted...)
	if err != nil {
		return err
	}
	if err := w.AwaitAccepted(ctx, 100); err != nil {
		return err
	}
	if err := paused.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	w.died()
	answer := withhold(w.kafka, w.members())
	defer answer()
	heir, err := w.worker(ctx)
	if err != nil {
		return err
	}
	all := float64(w.Config.Kafka.Topics.Partitions)
	if err := heir.AwaitMetric(ctx, func(n float64) bool { return n == all },
		"push_consumer_assigned_partitions", `topic="`+fleet.Topic+`"`); err != nil {
		return err
	}
	w.deaths[len(w.deaths)-1].resumed = time.Now()
	if err := paused.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	// Time for both to send what both have: more than the windows hold.
	return w.AwaitAccepted(ctx, w.Sim.Ledger().Totals().Accepted+3*killBound)
}

// members are the ids of all members of the lane's groups.
func (w *world) members() map[string]bool {
	ids := make(map[string]bool)
	for _, group := range w.commits.groups {
		info := w.kafka.Cluster.GroupInfo(group)
		if info == nil {
			continue
		}
		for _, m := range info.Members {
			ids[m.MemberID] = true
		}
	}
	return ids
}

// withhold makes the coordinator keep what these members ask of it from now on,
// undone and unanswered, until the function that is returned is called.
func withhold(k *embedded.Kafka, members map[string]bool) (answer func()) {
	until := make(chan struct{})
	for key, memberOf := range map[kmsg.Key]func(kmsg.Request) string{
		kmsg.Heartbeat:    func(r kmsg.Request) string { return r.(*kmsg.HeartbeatRequest).MemberID },
		kmsg.OffsetCommit: func(r kmsg.Request) string { return r.(*kmsg.OffsetCommitRequest).MemberID },
		kmsg.JoinGroup:    func(r kmsg.Request) string { return r.(*kmsg.JoinGroupRequest).MemberID },
		kmsg.SyncGroup:    func(r kmsg.Request) string { return r.(*kmsg.SyncGroupRequest).MemberID },
	} {
		k.Cluster.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.Cluster.KeepControl()
			if members[memberOf(r)] {
				k.Cluster.SleepControl(func() { <-until })
			}
			return nil, nil, false
		})
	}
	return func() { close(until) }
}
