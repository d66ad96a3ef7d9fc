package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

func newEventsCommand(a *app) *cobra.Command {
	return newGroup("events", "What became of notifications, from push.events", newEventsTailCommand(a), newEventsStatsCommand(a))
}

// eventFilter selects counts and failures. An empty list selects everything.
type eventFilter struct {
	lanes, apps, types, providers, states, reasons, senders, ids []string
	since                                                        moment
	json                                                         bool
}

func (f *eventFilter) flags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.lanes, "lane", nil, "only of this `lane`, including its retries")
	flags.StringSliceVar(&f.apps, "app", nil, "only of this `app`")
	flags.StringSliceVar(&f.types, "type", nil, "only of this `type`")
	flags.StringSliceVar(&f.providers, "provider", nil, "only of this `provider`: "+push.PlatformNames(" or "))
	flags.StringSliceVar(&f.states, "state", nil, "only with this `state`: DELIVERED, FAILED, …")
	flags.StringSliceVar(&f.reasons, "reason", nil, "only with this reason `code`")
	flags.BoolVar(&f.json, "json", false, "the same as -o json")
}

func (f *eventFilter) check(a *app) error {
	for _, p := range f.providers {
		if _, ok := push.ParsePlatform(p); !ok {
			return usagef("--provider: %q is neither %s", p, push.PlatformNames(" nor "))
		}
	}
	if f.json {
		a.format = terminal.FormatJSON
	}
	return nil
}

func (f *eventFilter) passes(lane, app, typ, provider, state, reason string) bool {
	code, _, _ := strings.Cut(reason, ":")
	lane = strings.TrimSuffix(lane, ".retry")
	return among(f.lanes, lane) && among(f.apps, app) && among(f.types, typ) && among(f.providers, provider) && among(f.states, state) &&
		(among(f.reasons, reason) || slices.Contains(f.reasons, code))
}

func (f *eventFilter) passesCount(c *events.Count) bool {
	return len(f.senders) == 0 && len(f.ids) == 0 && f.passes(c.Lane, c.App, c.Type, c.Provider, c.State, c.Reason)
}

func (f *eventFilter) passesFailure(e *events.Failure) bool {
	return among(f.senders, e.Sender) && among(f.ids, e.ID) && f.passes(e.Lane, e.App, e.Type, e.Provider, e.State, e.Reason)
}

// eventReader reads push.events and returns each event once. A record that is
// not an event is reported, counted and skipped, so that it cannot stop the
// reader.
type eventReader struct {
	*kafka.Follower
	decoder    events.Decoder
	tally      events.Tally
	stderr     io.Writer
	unreadable int
}

// mostTold is how many skipped records are reported one by one.
const mostTold = 20

// openEvents opens push.events.
func (a *app) openEvents(ctx context.Context) (*eventReader, error) {
	if _, err := a.reachKafka(ctx, kafka.EventsTopic); err != nil {
		return nil, err
	}
	opts, err := a.kafkaOptions()
	if err != nil {
		return nil, err
	}
	f, err := kafka.NewFollower(opts, kafka.EventsTopic, nil)
	if err != nil {
		return nil, err
	}
	a.onClose(f.Close)
	return &eventReader{Follower: f, stderr: a.stderr}, nil
}

// passOver reports and counts a record that is not an event.
func (r *eventReader) passOver(rec kafka.Record, why error) {
	if r.unreadable++; r.unreadable > mostTold {
		return
	}
	_, _ = fmt.Fprintf(r.stderr, "skipped %s/%d/%d: %v\n", kafka.EventsTopic, rec.Partition, rec.Offset, why)
	if r.unreadable == mostTold {
		_, _ = fmt.Fprintln(r.stderr, "further skipped records are only counted")
	}
}

// verdict ends a command that has read everything: with errDifference if
// events may be missing from its answer.
func (r *eventReader) verdict() error {
	if r.unreadable == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(r.stderr, "skipped %d records; their events are missing above\n", r.unreadable)
	return errDifference
}

// decode decodes a record; nil for a copy, or if it is not an event.
func (r *eventReader) decode(rec kafka.Record) *events.Event {
	e, err := r.decoder.Decode(rec.Value)
	if err != nil {
		r.passOver(rec, err)
	}
	return e
}

// read calls each with the events of an extent that end at since or later.
func (r *eventReader) read(ctx context.Context, e kafka.Extent, since time.Time, each func(*events.Event) error) error {
	return r.ReadExtent(ctx, e, func(rec kafka.Record) error {
		if event := r.decode(rec); event != nil && !event.At.Before(since) {
			return each(event)
		}
		return nil
	})
}

// among reports whether s is one of words; no words select everything.
func among(words []string, s string) bool { return len(words) == 0 || slices.Contains(words, s) }
