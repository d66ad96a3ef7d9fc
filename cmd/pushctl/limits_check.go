package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/wiring/lookup"
)

func newLimitsCheckCommand(a *app) *cobra.Command {
	var f notificationFlags
	cmd := &cobra.Command{
		Use:   "check USER",
		Short: "Would a notification be sent to a user now, and if not, why?",
		Long: `Take a made-up notification through what a worker asks before it sends: the user's preferences and quiet hours,
the devices, limits.rules and, with --sender, limits.senders. Nothing is stored and nothing is spent. Routes are not
asked: see pushctl routes and the metrics.

Exit status: 0 it would be sent, 1 it would not.`,
		Example: "  pushctl limits check u42 --lane promotional --type news --sender campaigns\n  pushctl limits check u42 --priority critical --sender otp -o json | jq -r .reason",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := a.ask(cmd.Context(), f.question(args[0]))
			if err != nil {
				return err
			}
			v, err := q.Decide(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.show(explainDecision(v)); err != nil {
				return err
			}
			if !v.Sent {
				return errDifference
			}
			return nil
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func explainDecision(v lookup.Decision) terminal.Answer {
	what, until := "it would be sent", ""
	if !v.Sent {
		what = v.State + ": " + v.Words
	}
	if v.Until != nil {
		until = v.Until.Format(time.RFC3339)
	}
	t := terminal.Table{Columns: []string{"now", "reason", "until", "devices", "refused devices"}}
	t.Add(what, v.Reason, until, strconv.Itoa(v.Devices), strconv.Itoa(v.Refused))
	return terminal.Answer{Value: v, Table: t}
}
