package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/pipeline"
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
)

func newEventsTailCommand(a *app) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Counts and failures as the workers tell them",
		Long: `Print what workers write to push.events from now on, or since a time, until it is interrupted: counts about
once a second, and every final failure with its id. --stop ends at what is there now. With -o json each
line is one object, with "event": "count" or "failure".`,
		Example: "  pushctl events tail --only failures --app shop\n  pushctl events tail --since 15m --stop --state DEAD_LETTERED --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.tailEvents(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	f.flags(flags)
	flags.StringSliceVar(&f.senders, "sender", nil, "only failures of this `sender_id`")
	flags.StringSliceVar(&f.ids, "id", nil, "only failures of this notification `id`")
	flags.Var(&f.since, "since", "begin with what was written at this time: RFC 3339, a day, or a duration before now; default: now")
	flags.StringVar(&f.only, "only", "", "counts or failures")
	flags.BoolVar(&f.stop, "stop", false, "end at what is there now")
	return cmd
}

func (a *app) tailEvents(ctx context.Context, f *tailFlags) error {
	if err := f.check(a); err != nil {
		return err
	}
	if f.only != "" && f.only != onlyCounts && f.only != onlyFailures {
		return usagef("--only: want %s or %s", onlyCounts, onlyFailures)
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
	p := &eventPrinter{w: a.stdout, filter: f, json: a.format == formatJSON}
	if err := r.read(ctx, extent, since, p.print); err != nil || f.stop {
		return err
	}
	ends := make(map[int32]int64, len(extent))
	for partition, span := range extent {
		ends[partition] = span.To
	}
	r.Seek(ends)
	for {
		records, err := r.Poll(ctx, 1000)
		for _, rec := range records {
			event, err := r.decode(rec)
			if err == nil && event != nil {
				err = p.print(event)
			}
			if err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// countLine and failureLine are lines for scripts.
type countLine struct {
	Event  string    `json:"event"`
	Source string    `json:"source"`
	From   time.Time `json:"from"`
	At     time.Time `json:"at"`
	pipeline.EventCount
}
type failureLine struct {
	Event  string `json:"event"`
	Source string `json:"source"`
	pipeline.EventFailure
}

// eventPrinter prints events that pass the filter, a line each.
type eventPrinter struct {
	w      io.Writer
	filter *tailFlags
	json   bool
}

func (p *eventPrinter) print(e *pipeline.Event) error {
	var b strings.Builder
	for i := range e.Counts {
		if c := &e.Counts[i]; p.filter.only != onlyFailures && p.filter.passesCount(c) {
			if p.json {
				writeLine(&b, countLine{"count", e.Source, e.From, e.At, *c})
				continue
			}
			fmt.Fprintf(&b, "%s  %8d  %-13s %s\n", e.At.UTC().Format("15:04:05.000"), c.N, c.State, eventWords(c.Lane, c.App, c.Type, c.Provider, c.Reason))
		}
	}
	for i := range e.Failures {
		if f := &e.Failures[i]; p.filter.only != onlyCounts && p.filter.passesFailure(f) {
			if p.json {
				writeLine(&b, failureLine{"failure", e.Source, *f})
				continue
			}
			device := ""
			if f.Device != "" {
				device = "device " + f.Device + " "
			}
			words := eventWords(f.Lane, f.App, f.Type, f.Provider, f.Reason)
			if m := meaning(f.Reason, ""); m != "" {
				words += " (" + m + ")"
			}
			fmt.Fprintf(&b, "%s  %8s  %-13s %s %s%s\n", f.At.UTC().Format("15:04:05.000"), "failed", f.State, printable(f.ID), printable(device), printable(words))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := io.WriteString(p.w, b.String()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// eventWords are what is known, in one order.
func eventWords(words ...string) string {
	known := words[:0]
	for _, w := range words {
		if w != "" {
			known = append(known, printable(w))
		}
	}
	return strings.Join(known, " ")
}

// writeLine writes one value without line breaks, and one behind it.
func writeLine(b *strings.Builder, v any) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings, numbers and times of this century always encode
	}
}
