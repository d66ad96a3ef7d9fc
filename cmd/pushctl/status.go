package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/explain"
)

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status ID",
		Short: "Why a notification did or did not arrive: every state of every device, in words",
		Long: `Show every state of every device of a notification in the order of time, the outcome that follows from
them, and the reasons in words. DELIVERED means accepted by the provider; what the device does with it is
not known. Steps count hand-overs: each retry and each redrive is one step. A record without a usable id
is found under kafka:… (pushctl dlq show prints that id).

Exit status 1 if the id has no state; the answer then lists the possible causes.`,
		Example: "  pushctl status 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21\n  pushctl status 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21 -o json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.showStatus(cmd.Context(), args[0]) },
	}
}

func (a *app) showStatus(ctx context.Context, id string) error {
	l, err := a.lookups()
	if err != nil {
		return err
	}
	n, err := l.Notification(ctx, id)
	if err != nil {
		return err
	}
	if err := a.show(showNotification(n)); err != nil {
		return err
	}
	if len(n.States) == 0 {
		return errDifference
	}
	return nil
}

// showNotification is the table of a notification's states, with the outcome
// and what became of each device below it.
func showNotification(n explain.Notification) terminal.Answer {
	t := terminal.Table{Columns: []string{"time", "step", "state", "device", "provider", "reason", "provider id"}}
	for _, s := range n.States {
		t.Add(s.At.UTC().Format("2006-01-02T15:04:05.000Z"), strconv.Itoa(int(s.Step)), s.State, s.Device, s.Provider, s.Reason, s.ProviderID)
	}
	ans := terminal.Answer{Value: n, Table: t}
	if len(n.States) == 0 {
		ans.Before = "notification " + terminal.Word(n.ID) + " has no state: " + n.Meaning
		return ans
	}
	ans.After = "outcome: " + n.Outcome + ": " + terminal.Word(n.Meaning)
	for _, d := range n.Devices {
		ans.After += "\n  " + terminal.Word(d.String())
	}
	return ans
}
