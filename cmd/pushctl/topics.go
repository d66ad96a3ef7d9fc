package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
)

// partitionsMove says what adding partitions does, in one sentence.
const partitionsMove = "Adding partitions moves users to other partitions: until the old ones are drained, a user's notifications may overtake each other and be processed by two workers at once (README, \"Adding partitions\")."

// usersStay is why push.users never grows.
const usersStay = "keeps its %d partitions, not %d: with more, the parts of a user would lie in two partitions"

func newTopicsCommand(a *app) *cobra.Command {
	return newGroup("topics", "The topics of the configuration", newTopicsEnsureCommand(a), newTopicsACLsCommand(a))
}

func newTopicsEnsureCommand(a *app) *cobra.Command {
	var o kafka.EnsureOptions
	cmd := &cobra.Command{
		Use:   "ensure",
		Short: "Create missing topics, and say how the others differ",
		Long: `Create the topics of the configuration that are missing, with kafka.topics.partitions, .replication and
.retention: for each lane its topic, its retry, deferral and hold topics, its DLQ and the DLQ's audit
topic, and besides push.users with its quarantine, push.feedback and push.events; with
gateway.fanout.enabled also push.fanout, its DLQ, and each lane's chunks and those on hold. The settings of existing topics are never changed; the command says how they differ.

With --add-partitions, topics with fewer partitions than configured get more.
` + partitionsMove + `
push.users never gets more, because all records of a user must stay in one partition.

Exit status 1 if a topic differs, or with --dry-run if one is missing.`,
		Example: "  pushctl topics ensure --dry-run\n  pushctl topics ensure\n  PUSHFLEET_KAFKA_TOPICS_PARTITIONS=36 pushctl topics ensure --add-partitions",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.ensureTopics(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "change nothing, only say what would be done")
	cmd.Flags().BoolVar(&o.AddPartitions, "add-partitions", false, "add partitions to topics with too few; this moves users to other partitions")
	return cmd
}

// topicRow is a topic in the JSON answer.
type topicRow struct {
	Topic       string   `json:"topic"`
	State       string   `json:"state"`
	Differences []string `json:"differences"`
}

func (a *app) ensureTopics(ctx context.Context, o kafka.EnsureOptions) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	admin, err := a.reachKafka(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*a.connectTime)
	defer cancel()
	specs := append(wiring.Topics(c), wiring.FanoutTopics(c)...)
	kept, err := keepUsersTopic(ctx, admin, specs)
	if err != nil {
		return err
	}
	states, err := admin.EnsureTopics(ctx, specs, o)
	ans, different := explainTopics(states, kept, o)
	if shown := a.show(ans); shown != nil {
		return errors.Join(err, shown)
	}
	if err == nil && different {
		return errDifference
	}
	return err
}

// keepUsersTopic sets the wanted number of partitions of push.users to the
// existing one, so that the topic neither differs nor grows. If more are
// configured, it returns a note that says so.
func keepUsersTopic(ctx context.Context, admin *kafka.Admin, specs []kafka.TopicSpec) (note string, err error) {
	var missing *kafka.MissingTopicsError
	switch err := admin.CheckTopics(ctx, kafka.UsersTopic); {
	case errors.As(err, &missing):
		return "", nil
	case err != nil:
		return "", err
	}
	ends, err := admin.EndOffsets(ctx, kafka.UsersTopic)
	if err != nil {
		return "", err
	}
	for i := range specs {
		if s := &specs[i]; s.Name == kafka.UsersTopic && int(s.Partitions) > len(ends) {
			note = fmt.Sprintf(usersStay, len(ends), s.Partitions)
			s.Partitions = int32(len(ends))
		}
	}
	return note, nil
}

// explainTopics says what was done, and whether a topic is not as configured.
func explainTopics(states []kafka.TopicState, kept string, o kafka.EnsureOptions) (ans terminal.Answer, different bool) {
	rows := make([]topicRow, 0, len(states))
	t := terminal.Table{Columns: []string{"topic", "state", "differences"}}
	grows := false
	for _, s := range states {
		r := topicRow{Topic: s.Topic, State: s.State, Differences: slices.Clone(s.Differences)}
		if r.Differences == nil {
			r.Differences = []string{}
		}
		grows = grows || slices.ContainsFunc(r.Differences, func(d string) bool { return strings.HasPrefix(d, "would add partitions") })
		different = different || s.State == kafka.TopicDiffers || s.State == kafka.TopicWouldCreate
		if s.Topic == kafka.UsersTopic && kept != "" {
			r.Differences = append(r.Differences, kept)
		}
		rows = append(rows, r)
		t.Add(r.Topic, r.State, strings.Join(r.Differences, "; "))
	}
	ans = terminal.Answer{Value: rows, Table: t}
	switch {
	case o.AddPartitions:
		ans.Before = partitionsMove
	case grows:
		ans.After = "--add-partitions adds them. " + partitionsMove
	}
	return ans, different
}
