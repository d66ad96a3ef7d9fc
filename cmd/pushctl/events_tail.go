package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/kafka"
)

// tailFlags are the command line of events tail.
type tailFlags struct {
	eventFilter
	only string
	stop bool
}

// What --only takes.
const (
	onlyCounts   = "counts"
	onlyFailures = "failures"
	onlyStates   = "states"
)

func newEventsTailCommand(a *app) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print counts and failures as workers report them",
		Long: `Print what workers write to push.events, from now or from --since on, until interrupted: counts about once
a second, and every final failure with its id. --stop ends with the last event there is now. With -o json
each line is one object, whose "event" is count, failure, gap or, with --only states, state. A record that is not an event is reported
on standard error and skipped; with --stop, the exit status is then 1.`,
		Example: "  pushctl events tail --only failures --app shop\n  pushctl events tail --since 15m --stop --state DEAD_LETTERED --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.tailEvents(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	f.flags(flags)
	flags.StringSliceVar(&f.senders, "sender", nil, "only failures of this `sender_id`")
	flags.StringSliceVar(&f.ids, "id", nil, "only failures of this notification `id`")
	flags.Var(&f.since, "since", "start at this time: RFC 3339, a day, or a duration before now; default: now")
	flags.StringVar(&f.only, "only", "", "counts, failures or states: what workers are at, which is printed with this alone")
	flags.BoolVar(&f.stop, "stop", false, "end with the last event there is now")
	return cmd
}

func (a *app) tailEvents(ctx context.Context, f *tailFlags) error {
	if err := f.check(a); err != nil {
		return err
	}
	if f.only != "" && f.only != onlyCounts && f.only != onlyFailures && f.only != onlyStates {
		return usagef("--only: want %s, %s or %s", onlyCounts, onlyFailures, onlyStates)
	}
	r, err := a.openEvents(ctx)
	if err != nil {
		return err
	}
	since := f.since.Time
	if since.IsZero() {
		since = time.Now()
	}
	extent, err := r.Extent(ctx, since, time.Time{})
	if err != nil {
		return err
	}
	p := &eventPrinter{w: a.stdout, filter: f, json: a.format == terminal.FormatJSON}
	if err := r.read(ctx, extent, since, p.print); err != nil {
		return err
	}
	if f.stop {
		return r.verdict()
	}
	ends := make(map[int32]int64, len(extent))
	for partition, span := range extent {
		ends[partition] = span.To
	}
	r.Seek(ends)
	return r.Follow(ctx, func(rec kafka.Record) error {
		if event := r.decode(rec); event != nil {
			return p.print(event)
		}
		return nil
	})
}

// countLine, failureLine and gapLine are the lines of the JSON output.
type countLine struct {
	Event  string    `json:"event"`
	Source string    `json:"source"`
	From   time.Time `json:"from"`
	At     time.Time `json:"at"`
	events.Count
}
type failureLine struct {
	Event  string `json:"event"`
	Source string `json:"source"`
	events.Failure
}

type gapLine struct {
	Event  string `json:"event"`
	Source string `json:"source"`
	events.Gap
}

type stateLine struct {
	Event  string    `json:"event"`
	Source string    `json:"source"`
	At     time.Time `json:"at"`
	*events.State
}

// eventPrinter prints the selected counts and failures, and every gap, one per
// line.
type eventPrinter struct {
	w      io.Writer
	filter *tailFlags
	json   bool
}

func (p *eventPrinter) print(e *events.Event) error {
	var b bytes.Buffer
	if p.filter.only == onlyStates {
		return p.printState(e)
	}
	for i := range e.Counts {
		if c := &e.Counts[i]; p.filter.only != onlyFailures && p.filter.passesCount(c) {
			if p.json {
				if err := terminal.WriteJSON(&b, countLine{"count", e.Source, e.From, e.At, *c}, ""); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(&b, "%s  %8d  %-13s %s\n", e.At.UTC().Format("15:04:05.000"), c.N, terminal.Word(c.State), eventWords(c.Lane, c.App, c.Type, c.Provider, c.Reason))
		}
	}
	for i := range e.Failures {
		if f := &e.Failures[i]; p.filter.only != onlyCounts && p.filter.passesFailure(f) {
			if p.json {
				if err := terminal.WriteJSON(&b, failureLine{"failure", e.Source, *f}, ""); err != nil {
					return err
				}
				continue
			}
			device := ""
			if f.Device != "" {
				device = "device " + f.Device + " "
			}
			words := eventWords(f.Lane, f.App, f.Type, f.Provider, f.Reason)
			if m := explain.Reason(f.Reason, ""); m != "" {
				words += " (" + m + ")"
			}
			fmt.Fprintf(&b, "%s  %8s  %-13s %s %s%s\n", f.At.UTC().Format("15:04:05.000"), "failed", terminal.Word(f.State), terminal.Word(f.ID), terminal.Word(device), terminal.Word(words))
		}
	}
	if g := e.Gap; g != nil {
		if p.json {
			if err := terminal.WriteJSON(&b, gapLine{"gap", e.Source, *g}, ""); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(&b, "%s  %8s  events of %s between %s and %s, some or all: look into the status store\n", e.At.UTC().Format("15:04:05.000"), "missing",
				terminal.Word(e.Source), g.From.UTC().Format("15:04:05.000"), g.To.UTC().Format("15:04:05.000"))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := b.WriteTo(p.w); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// printState prints what a worker is at.
func (p *eventPrinter) printState(e *events.Event) error {
	s := e.State
	switch {
	case s == nil:
		return nil
	case p.json:
		return terminal.WriteJSON(p.w, stateLine{"state", e.Source, e.At, s}, "")
	}
	open, pushes, stopped := int64(0), int64(0), 0
	for i := range s.Lanes {
		open, pushes = open+s.Lanes[i].Open, pushes+s.Lanes[i].Pushes
	}
	for i := range s.Routes {
		if s.Routes[i].Gate != gateOrder[0] {
			stopped++
		}
	}
	last := ""
	if s.Last {
		last = ", its last word"
	}
	if _, err := fmt.Fprintf(p.w, "%s  %8s  %s: %d records open, %d pushes under way, %d of %d routes stopped, %d stalls%s\n", e.At.UTC().Format("15:04:05.000"), "state",
		terminal.Word(s.Worker), open, pushes, stopped, len(s.Routes), len(s.Stalls), last); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// eventWords joins the words that are not empty.
func eventWords(words ...string) string {
	known := words[:0]
	for _, w := range words {
		if w != "" {
			known = append(known, terminal.Word(w))
		}
	}
	return strings.Join(known, " ")
}
