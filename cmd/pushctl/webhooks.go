package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/kafka"
)

func newWebhooksCommand(a *app) *cobra.Command {
	return newGroup("webhooks", "Webhooks that were not delivered: post them again", newWebhooksRedeliverCommand(a))
}

// redeliverFlags are the command line of webhooks redeliver.
type redeliverFlags struct {
	dlq.RedeliverOptions
	since, until moment
}

func newWebhooksRedeliverCommand(a *app) *cobra.Command {
	var f redeliverFlags
	cmd := &cobra.Command{
		Use:   "redeliver",
		Short: "Post dead letters of webhooks again; a dry run without --yes",
		Long: `Count the webhooks in push.webhooks-dlq that would be posted again; with --yes, put them back into the topics
of their senders, at most --rate a second. From there pushgateway webhooks posts them like new ones, for
gateway.webhooks.keep from now on, with the webhook-id that they had: an endpoint that has one already knows it.

It covers what the topic holds when it starts, and marks nothing: run again, it posts the same again. So say by
--since and --until what is meant, as the time at which they became dead letters. Left out are those whose sender is
not in gateway.webhooks.senders any more, and what is no JSON.

Reasons are topic_refused, refused, expired, gone and no_endpoint (docs/webhooks.md).`,
		Example: "  pushctl webhooks redeliver --sender orders --since 2h\n  pushctl webhooks redeliver --sender orders --reason topic_refused --since 2026-11-26T07:00:00Z --rate 500 --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.redeliver(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.Senders, "sender", nil, "only of this `sender`; default: all")
	flags.StringSliceVar(&f.Reasons, "reason", nil, "only with this `reason`")
	flags.Var(&f.since, "since", "only dead-lettered at this time or later: RFC 3339, a day, or a duration before now")
	flags.Var(&f.until, "until", "only dead-lettered before this time")
	flags.Float64Var(&f.Rate, "rate", 100, "at most `n` a second, 0.1 to 100,000")
	flags.IntVar(&f.Limit, "limit", 0, "at most `n` in all, the first ones of each partition; 0 = all")
	flags.BoolVar(&f.Do, "yes", false, "do it")
	return cmd
}

func (a *app) redeliver(ctx context.Context, f *redeliverFlags) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	o := f.RedeliverOptions
	if o.Told = c.Gateway.Webhooks.Senders; len(o.Told) == 0 {
		return usagef("nobody is told anything without gateway.webhooks.senders")
	}
	o.Since, o.Until = f.since.Time, f.until.Time
	if err := optionUsage(o.Check()); err != nil {
		return err
	}
	topics := []string{kafka.DeadWebhooksTopic}
	for _, s := range o.Told {
		if len(o.Senders) == 0 || slices.Contains(o.Senders, s) {
			topics = append(topics, kafka.WebhooksTopic(s))
		}
	}
	if _, err := a.reachKafka(ctx, topics...); err != nil {
		return err
	}
	options, err := a.kafkaOptions()
	if err != nil {
		return err
	}
	queue, err := kafka.NewDeadWebhooks(options)
	if err != nil {
		return err
	}
	defer queue.Close()
	show := newProgress(a.stderr)
	defer show.end()
	o.Progress = func(v dlq.Redelivered) {
		show.line("%d redelivered (%.0f/s of %g/s), %d left out", v.Redelivered, v.Rate, o.Rate, v.Matched-v.Redelivered)
	}
	v, err := dlq.Redeliver(ctx, queue, o)
	show.end()
	return a.showDone(explainRedelivered(v), err)
}

// explainRedelivered says what was redelivered.
func explainRedelivered(v dlq.Redelivered) terminal.Answer {
	var after []string
	t := terminal.Table{Columns: []string{"sender", "webhooks"}}
	for _, sender := range slices.Sorted(maps.Keys(v.Senders)) {
		t.Add(sender, fmt.Sprint(v.Senders[sender]))
	}
	for _, why := range slices.Sorted(maps.Keys(v.Reasons)) {
		after = append(after, fmt.Sprintf("%d were dead letters because: %s", v.Reasons[why], strings.ReplaceAll(why, "_", " ")))
	}
	for _, why := range slices.Sorted(maps.Keys(v.Skipped)) {
		after = append(after, fmt.Sprintf("%d left out: %s", v.Skipped[why], strings.ReplaceAll(why, "_", " ")))
	}
	if v.DryRun {
		after = append(after, fmt.Sprintf("dry run: %d of %d would be redelivered; --yes does it", v.Redelivered, v.Matched))
	} else {
		after = append(after, fmt.Sprintf("%d of %d redelivered; pushgateway webhooks posts them", v.Redelivered, v.Matched))
	}
	return terminal.Answer{Value: v, Table: t, After: strings.Join(after, "\n")}
}
