package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/events"
)

// listFlags are the command line of providers ls.
type listFlags struct {
	wait  time.Duration
	watch bool
	json  bool
}

// newProvidersListCommand makes `providers ls`, and what `providers` does without one.
func newProvidersListCommand(a *app, use string) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   use,
		Short: "What each route is at: rate, pauses, connections, answers",
		Long: `Show what workers say of the routes to Apple and Google, from push.events: the rate of the fleet now and as
configured, what each worker takes of it, whether it is paused and until when, connections, the streams that
the provider grants, and the answers of the last minute. Workers tell it once a second; one that has been
silent for 5 s is left out.

Exit status 1 if no worker is heard.`,
		Example: "  pushctl providers ls\n  pushctl providers ls --watch\n  pushctl providers ls --json | jq '.routes[] | select(.gate != \"open\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.wait < 0 {
				return usagef("--wait: %v is below 0", f.wait)
			}
			if f.json {
				a.format = terminal.FormatJSON
			}
			return a.listProviders(cmd.Context(), &f)
		},
	}
	cmd.Flags().DurationVar(&f.wait, "wait", 2*time.Second, "listen for so long: a worker tells its state once a second")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "go on, and print a table each second until interrupted")
	cmd.Flags().BoolVar(&f.json, "json", false, "the same as -o json")
	return cmd
}

// watchRound is how often --watch prints.
const watchRound = time.Second

func (a *app) listProviders(ctx context.Context, f *listFlags) error {
	r, err := a.openEvents(ctx)
	if err != nil {
		return err
	}
	l := &listener{eventReader: r}
	if err := l.begin(ctx); err != nil {
		return err
	}
	if err := l.listen(ctx, f.wait); err != nil {
		return err
	}
	for {
		there := l.fleet.Workers(time.Now())
		answer := explainRoutes(there)
		if f.watch {
			answer.Before = time.Now().UTC().Format("15:04:05")
			if err := answer.Write(a.stdout, a.format, ""); err != nil {
				return err
			}
		} else if err := a.show(answer); err != nil {
			return err
		}
		if len(there) == 0 {
			_, _ = fmt.Fprintln(a.stderr, l.silence(a))
		}
		switch {
		case f.watch:
		case len(there) == 0:
			return errDifference
		default:
			return r.verdict()
		}
		if err := l.listen(ctx, watchRound); err != nil {
			return err
		}
	}
}

// listener hears workers on push.events.
type listener struct {
	*eventReader
	fleet  events.Fleet
	others int // events of workers that are no states
}

// begin reads what was told lately, and stands at the end of the topic.
func (l *listener) begin(ctx context.Context) error {
	now := time.Now()
	extent, err := l.Extent(ctx, now.Add(-events.StateGone), time.Time{})
	if err != nil {
		return err
	}
	ends := make(map[int32]int64, len(extent))
	for partition, span := range extent {
		ends[partition] = span.To
	}
	err = l.read(ctx, extent, time.Time{}, func(e *events.Event) error {
		at := e.At // of one whose clock is ahead, not more than now
		if at.After(now) {
			at = now
		}
		l.hear(e, at)
		return nil
	})
	if err != nil {
		return err
	}
	l.Seek(ends)
	return nil
}

// listen hears what is told from now on, for so long.
func (l *listener) listen(ctx context.Context, wait time.Duration) error {
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		records, err := l.Poll(within, 1000)
		for _, rec := range records {
			if e := l.decode(rec); e != nil {
				l.hear(e, time.Now())
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case within.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

func (l *listener) hear(e *events.Event, at time.Time) {
	if e.State == nil {
		l.others++
	}
	l.fleet.Hear(e, at)
}

// silence says why there may be nobody.
func (l *listener) silence(a *app) string {
	c, err := a.config()
	switch {
	case err == nil && !c.Events.State:
		return "no worker tells its state: events.state is false in this configuration"
	case l.others > 0:
		return "workers write to push.events, but tell no state: events.state is false in their configuration, or they are of an earlier version"
	}
	return "no worker has told its state in the last 5 s: none runs, events.state is false in their configuration, or they cannot write to push.events"
}
