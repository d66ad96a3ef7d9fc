package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
)

// dismissFlags are the command line of dlq dismiss.
type dismissFlags struct {
	letterFlags
	expired bool
	yes     bool
	by      string
}

func newDLQDismissCommand(a *app) *cobra.Command {
	var f dismissFlags
	cmd := &cobra.Command{
		Use:   "dismiss",
		Short: "Mark dead letters as settled, so that ls leaves them out; a dry run without --yes",
		Long: `Record in the audit topic that nothing more will be done about these dead letters. From then on ls and
redrive leave them out. Nothing is deleted, and --all still finds them.`,
		Example: "  pushctl dlq dismiss --expired\n  pushctl dlq dismiss --reason bad_json --sender orders --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.dismiss(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	_ = flags.MarkHidden("all") // dismissing twice changes nothing
	flags.BoolVar(&f.expired, "expired", false, "only those that a redrive would no longer send")
	flags.BoolVar(&f.yes, "yes", false, "do it")
	flags.StringVar(&f.by, "by", "", "your name, for the audit topic; default: $USER")
	return cmd
}

func (a *app) dismiss(ctx context.Context, f *dismissFlags) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	queues, err := a.deadLetters(filter.Lanes...)
	if err != nil {
		return err
	}
	v, err := queues.Dismiss(ctx, dlq.DismissOptions{Filter: filter, Expired: f.expired, Do: f.yes, By: a.who(f.by)})
	if err != nil {
		if v.DryRun {
			return err
		}
		return partlyf(err, "at least %d dead letters were dismissed; the command can be repeated", v.Dismissed)
	}
	ans := terminal.Answer{Value: v, After: fmt.Sprintf("%d dead letters dismissed", v.Dismissed)}
	if v.DryRun {
		ans.After = fmt.Sprintf("dry run: %d dead letters would be dismissed; --yes does it", v.Dismissed)
	}
	return a.show(ans)
}
