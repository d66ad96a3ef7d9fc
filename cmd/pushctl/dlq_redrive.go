package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
)

// redriveFlags are the command line of dlq redrive.
type redriveFlags struct {
	letterFilter
	rate        float64
	limit       int
	maxRedrives int
	maxAge      time.Duration
	yes         bool
	by          string
	list        int
}

func newDLQRedriveCommand(a *app) *cobra.Command {
	var f redriveFlags
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Send dead letters again: a dry run, unless --yes",
		Long: `Say which dead letters would be sent again, and with --yes do it: each goes to the retry topic of its lane,
at most --rate a second, and is noted in the audit topic, so that ls leaves it out from then on.

What is redriven is what the DLQ holds at the start; what is dead-lettered again meanwhile waits for the
next redrive. A worker takes it up when the retry tier's delay has passed, with all its retries anew,
and reads its status first: what was delivered meanwhile, or was redriven twice because this command was
interrupted, is not sent again.

Left out are: what expires before it would be taken up, what was redriven --max-redrives times, what was
first seen longer than --max-age ago, what was dead-lettered longer ago than the status store keeps, and
what no worker could use: records that do not decode, have no value, unreadable headers, or an app that
the configuration does not have.`,
		Example: "  pushctl dlq redrive --lane transactional --reason retries_used_up --provider fcm --since 2h\n  pushctl dlq redrive --reason unknown_app --app shop --rate 500 --yes\n  pushctl dlq redrive --id 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21 --all --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.redrive(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	flags := cmd.Flags()
	flags.Float64Var(&f.rate, "rate", 100, "at most `n` a second, 0.1 to 100,000")
	flags.IntVar(&f.limit, "limit", 0, "at most `n` in all, the first ones of each partition; 0 = all")
	flags.IntVar(&f.maxRedrives, "max-redrives", 3, "leave out what was redriven `n` times")
	flags.DurationVar(&f.maxAge, "max-age", 0, "leave out what was first seen longer ago; 0 = only what its lane calls too old")
	flags.BoolVar(&f.yes, "yes", false, "do it")
	flags.StringVar(&f.by, "by", "", "who does it, for the audit topic; default: $USER")
	flags.IntVar(&f.list, "list", 20, "name the first `n`")
	return cmd
}

func (f *redriveFlags) check() error {
	switch {
	case !(f.rate >= 0.1 && f.rate <= 1e5):
		return usagef("--rate: must be 0.1 to 100,000")
	case f.limit < 0:
		return usagef("--limit: must be 0 or more")
	case f.maxRedrives < 1:
		return usagef("--max-redrives: must be 1 or more")
	case f.maxAge < 0:
		return usagef("--max-age: must be 0 or more")
	case f.list < 0:
		return usagef("--list: must be 0 or more")
	}
	return f.letterFilter.check()
}

// The reasons why a dead letter is not redriven.
const (
	skipExpired    = "expired"
	skipOld        = "older_than_max_age"
	skipRedriven   = "max_redrives"
	skipUnreadable = "unreadable_headers"
	skipNoValue    = "no_value"
	skipUnusable   = "does_not_decode"
	skipUnknownApp = "unknown_app"
	skipForgotten  = "status_not_kept"
)

// redriver is what redriving needs of a kafka.DLQ, auditor of its audit topic.
type redriver interface {
	Redrive(ctx context.Context, letters []*kafka.DeadLetter, tier string) error
}
type auditor interface {
	Write(ctx context.Context, marks []kafka.Mark) error
}

// redriving is one run over all lanes. It belongs to one goroutine.
type redriving struct {
	flags  *redriveFlags
	tier   kafka.Tier
	ttl    time.Duration   // of status rows; 0 = for ever
	apps   map[string]bool // nil: not known, all may be
	by     string
	pace   pacer
	show   *progress
	answer redriveAnswer
}

// redriveAnswer is what `pushctl dlq redrive` says. In a dry run Redriven is
// what would be.
type redriveAnswer struct {
	DryRun   bool           `json:"dry_run"`
	Matched  int            `json:"matched"`
	Redriven int            `json:"redriven"`
	Skipped  map[string]int `json:"skipped"` // by why
	Topics   []string       `json:"topics"`  // that they go to
	Delay    float64        `json:"delay_seconds"`
	Letters  []letterRow    `json:"letters"` // the first of those redriven
}

func (a *app) redrive(ctx context.Context, f *redriveFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	lanes, err := a.dlqLanes(f.lanes)
	if err != nil {
		return err
	}
	c := a.loaded
	r := &redriving{flags: f, tier: wiring.Tiers(c)[0], ttl: c.Cassandra.TTL, by: a.who(f.by), pace: newPacer(f.rate), show: newProgress(a.stderr),
		answer: redriveAnswer{DryRun: !f.yes, Skipped: make(map[string]int), Topics: []string{}, Letters: []letterRow{}}}
	defer r.show.end()
	r.answer.Delay = r.tier.Delay.Seconds()
	if len(c.Apps) > 0 {
		r.apps = make(map[string]bool)
		for _, app := range c.Apps {
			r.apps[app.Name] = true
		}
	}
	err = a.redriveLanes(ctx, lanes, r)
	r.show.end()
	if shown := a.show(r.explain()); shown != nil {
		return errors.Join(err, shown)
	}
	return err
}

// redriveLanes takes every lane's extent before anything is sent, so that what
// comes back to a DLQ is not sent in the same run.
func (a *app) redriveLanes(ctx context.Context, lanes []*configs.Lane, r *redriving) error {
	type opened struct {
		*kafka.DLQ
		marks  kafka.Marks
		extent kafka.Extent
	}
	queues := make([]opened, len(lanes))
	for i, lane := range lanes {
		q, marks, err := a.openDLQ(ctx, lane, r.flags.yes)
		if err != nil {
			return err
		}
		extent, err := q.Since(ctx, r.flags.since.Time)
		if err != nil {
			return err
		}
		if _, err := a.reachKafka(ctx, kafka.RetryTopic(lane.Topic, r.tier.Name)); err != nil {
			return err
		}
		queues[i] = opened{q, marks, extent}
	}
	for i, lane := range lanes {
		q := queues[i]
		r.answer.Topics = append(r.answer.Topics, kafka.RetryTopic(lane.Topic, r.tier.Name))
		err := r.lane(ctx, q.DLQ, q.Audit(), func(ctx context.Context, each func(letter) error) error {
			return q.Read(ctx, q.extent, func(d *kafka.DeadLetter) error { return each(newLetter(lane, d, q.marks)) })
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lane redrives what read hands out, in groups: each is acknowledged, and then
// marked. A crash in between leaves a record that is redriven twice, which the
// worker's confirm read makes once; the other order would leave one that is
// marked and was never sent.
func (r *redriving) lane(ctx context.Context, to redriver, audit auditor, read func(context.Context, func(letter) error) error) error {
	var group []*kafka.DeadLetter
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		if err := r.pace.wait(ctx, len(group)); err != nil {
			return err
		}
		// What was begun is marked, whether or not ctx ends meanwhile.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTime)
		defer cancel()
		if err := to.Redrive(within, group, r.tier.Name); err != nil {
			return partlyf(err, "any of %d more may have been sent; redriving them again is harmless", len(group))
		}
		marks, now := make([]kafka.Mark, len(group)), time.Now()
		for i, d := range group {
			marks[i] = kafka.MarkOf(d, kafka.Redriven, r.by, now)
		}
		if err := audit.Write(within, marks); err != nil {
			return partlyf(err, "%d more were sent and are not marked; redriving them again is harmless", len(group))
		}
		r.answer.Redriven += len(group)
		r.show.line("%d redriven (%.0f/s of %g/s), %d left out", r.answer.Redriven, r.pace.rate(), r.flags.rate, r.answer.Matched-r.answer.Redriven)
		group = group[:0]
		return nil
	}
	taken := r.answer.Redriven
	err := read(ctx, func(l letter) error {
		if !r.flags.passes(&l) {
			return ctx.Err()
		}
		if r.flags.limit > 0 && taken == r.flags.limit {
			return errEnough
		}
		r.answer.Matched++
		if why := r.skip(&l, time.Now()); why != "" {
			r.answer.Skipped[why]++
			return ctx.Err()
		}
		if taken++; len(r.answer.Letters) < r.flags.list {
			r.answer.Letters = append(r.answer.Letters, l.row(time.Now()))
		}
		if !r.flags.yes {
			r.answer.Redriven++
			return ctx.Err()
		}
		if group = append(group, l.DeadLetter); len(group) >= r.pace.group {
			return flush()
		}
		return ctx.Err()
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if e := flush(); e != nil {
		return e
	}
	return err
}

// skip says why a dead letter is not redriven; empty = it is.
func (r *redriving) skip(l *letter, now time.Time) string {
	switch {
	case l.Problem != nil:
		return skipUnreadable
	case l.Value == nil:
		return skipNoValue
	case l.defect != nil:
		return skipUnusable
	case r.apps != nil && !r.apps[l.message.App]:
		return skipUnknownApp
	case l.expired(now.Add(r.tier.Delay)):
		return skipExpired
	case r.ttl > 0 && now.Add(r.tier.Delay).Sub(l.Timestamp) > r.ttl:
		return skipForgotten // a confirm read could not tell what was delivered since
	case r.flags.maxAge > 0 && now.Sub(l.FirstSeen) > r.flags.maxAge:
		return skipOld
	case l.Redrive >= r.flags.maxRedrives:
		return skipRedriven
	}
	return ""
}

func (r *redriving) explain() terminal.Answer {
	v := r.answer
	t := terminal.Table{Columns: []string{"place", "id", "app", "reason", "detail", "provider", "redrives", "expires"}}
	for _, l := range v.Letters {
		t.Add(l.Place, l.ID, l.App, l.Reason, short(l.Detail, false), strings.Join(l.Providers, ","), strconv.Itoa(l.Redrives), timeOf(l.ExpiresAt))
	}
	var after []string
	if more := v.Redriven - len(v.Letters); more > 0 {
		after = append(after, fmt.Sprintf("and %d more", more))
	}
	for _, why := range slices.Sorted(maps.Keys(v.Skipped)) {
		after = append(after, fmt.Sprintf("%d left out: %s", v.Skipped[why], strings.ReplaceAll(why, "_", " ")))
	}
	if v.DryRun {
		after = append(after, fmt.Sprintf("dry run: %d of %d would be redriven; --yes does it", v.Redriven, v.Matched))
	} else {
		after = append(after, fmt.Sprintf("%d of %d redriven; the workers take them up after %v", v.Redriven, v.Matched, r.tier.Delay))
	}
	return terminal.Answer{Value: v, Table: t, After: strings.Join(after, "\n")}
}

// who does it, as the audit topic is told.
func (a *app) who(by string) string {
	if by != "" {
		return by
	}
	for _, v := range a.environ {
		if name, ok := strings.CutPrefix(v, "USER="); ok && name != "" {
			return name
		}
	}
	return "unknown"
}
