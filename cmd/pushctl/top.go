package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/wiring/dashboards"
)

// topFlags are the command line of top.
type topFlags struct {
	once, json bool
	filter     dashboard.Kind
}

func newTopCommand(a *app) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "See the fleet live in the terminal: the numbers of the dashboard, a second fresh",
		Long: `Show what is sent, in progress and queued now, routes, stalls and workers, what limits did, senders and theirs, and what
became of the notifications of the last hour, until q is pressed. --json prints a snapshot a second, one per line; with --once, one is printed
as soon as the last hour has been read. What is approximate is said at the end.`,
		Example: "  pushctl top\n  pushctl top --once --lane critical\n  pushctl top --once --json | jq .sum.queued",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.once, "once", false, "print once and end")
	flags.BoolVar(&f.json, "json", false, "the same as -o json")
	flags.StringVar(&f.filter.Lane, "lane", "", "only of this `lane`")
	flags.StringVar(&f.filter.App, "app", "", "only of this `app`, as far as it is told apart")
	flags.StringVar(&f.filter.State, "state", "", "only with this `state`: DELIVERED, FAILED, …")
	return cmd
}

func (a *app) top(ctx context.Context, f *topFlags) error {
	if f.json {
		a.format = terminal.FormatJSON
	}
	screen, is := terminal.Behind(a.stdout)
	if !is && !f.once && a.format != terminal.FormatJSON {
		return usagef("top: the output is no terminal: --once or --json")
	}
	reader, err := a.dashboardReader(ctx)
	if err != nil {
		return err
	}
	return dashboards.Beside(ctx, reader, func(ctx context.Context) error {
		if f.once || a.format == terminal.FormatJSON {
			return a.printTop(ctx, reader.Feed, f)
		}
		columns, rows := terminal.Size(screen)
		return showTop(ctx, screen, func() string {
			return screenful(topText(reader.Feed.Snapshot(time.Now(), f.filter, rows)), columns, rows)
		})
	})
}

// printTop prints snapshots without a screen.
func (a *app) printTop(ctx context.Context, feed *dashboard.Feed, f *topFlags) error {
	if err := settle(ctx, feed, 2*a.connectTime); err != nil {
		return err
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		s := feed.Snapshot(time.Now(), f.filter, 100)
		var err error
		if a.format == terminal.FormatJSON {
			err = terminal.WriteJSON(a.stdout, s, "")
		} else {
			_, err = io.WriteString(a.stdout, topText(s))
		}
		if err != nil || f.once {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle waits until the last hour and the positions have been read.
func settle(ctx context.Context, feed *dashboard.Feed, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("neither events nor offsets came from Kafka in time"))
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if s := feed.Snapshot(time.Now(), dashboard.Kind{}, 0); s.Ready && !s.OffsetsAt.IsZero() {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// showTop draws text on a terminal once a second, until q or Ctrl-C is pressed.
func showTop(ctx context.Context, screen io.Writer, draw func() string) error {
	keys, err := terminal.OpenKeys()
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer keys.Close()
	reading.Go(func() {
		defer leave()
		for {
			key, err := keys.Next()
			if err != nil || key == 'q' || key == 'Q' || key == 3 {
				return
			}
		}
	})
	// The other screen, so that what was there comes back; without a cursor.
	_, _ = io.WriteString(screen, "\x1b[?1049h\x1b[?25l")
	defer func() { _, _ = io.WriteString(screen, "\x1b[?25h\x1b[?1049l") }()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if _, err := io.WriteString(screen, "\x1b[H"+draw()+"\x1b[J"); err != nil {
			return fmt.Errorf("writing to the terminal: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// screenful cuts a text to a screen, and ends its lines as a terminal without
// translation needs it.
func screenful(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimRight(terminal.Text(text), "\n"), "\n")
	if len(lines) > rows {
		lines = lines[:rows]
	}
	for i, line := range lines {
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns])
		}
		lines[i] = line + "\x1b[K"
	}
	return strings.Join(lines, "\r\n")
}

// topText is a snapshot in words.
func topText(s *dashboard.Snapshot) string {
	var b strings.Builder
	part := func(before string, columns []string, rows [][]string) {
		ans := terminal.Answer{Before: before, Table: terminal.Table{Columns: columns}}
		for _, row := range rows {
			ans.Table.Add(row...)
		}
		_ = ans.Write(&b, terminal.FormatTable, "") // a Builder takes everything
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "pushfleet at %s: %s sent/s, %s failed/s, %d in progress, %d queued, %d wait, oldest %s (q leaves)\n\n", s.At.Format("15:04:05"),
		perSecond(s.Sum.Sent), perSecond(s.Sum.Failed), s.Sum.InProgress, s.Sum.Queued, s.Sum.Waiting, ageAt(s.Sum.Oldest, s.At))
	var rows [][]string
	for _, l := range s.Lanes {
		rows = append(rows, []string{l.Lane, perSecond(l.Sent), perSecond(l.Failed), num(l.InProgress), num(l.Pushes), num(l.Queued), num(l.Waiting), ageAt(l.Oldest, s.At)})
	}
	part("", []string{"lane", "sent/s", "failed/s", "in progress", "in flight", "queued", "wait", "oldest"}, rows)
	if rows = nil; len(s.Routes) > 0 {
		for _, r := range s.Routes {
			name := strings.TrimSuffix(r.Provider+"/"+r.App+"/"+r.Environment, "/")
			rows = append(rows, []string{name, lampWords(&r), perSecond(r.Share), num(r.InFlight), strconv.Itoa(r.Connections), r.Word})
		}
		part("", []string{"route", "lamp", "sent/s", "in flight", "connections", "last word"}, rows)
	}
	if rows = nil; len(s.Stalls) > 0 {
		for _, w := range s.Stalls {
			rows = append(rows, []string{w.Reason, w.Topic + w.Route, ageAt(w.Since, s.At), w.Worker})
		}
		part("", []string{"waits for", "where", "for", "worker"}, rows)
	}
	rows = nil
	for _, w := range s.Workers {
		rows = append(rows, []string{w.Worker, fmt.Sprintf("%d of %d", w.Partitions, w.Of), perSecond(w.Sent), num(w.Open),
			fmt.Sprintf("%d of %d MiB", w.Memory>>20, w.MemoryBound>>20), num(w.RepeatBound), ageAt(w.Started, s.At)})
	}
	if len(rows) > 0 {
		part("", []string{"worker", "partitions", "sent/s", "open", "memory", "a kill repeats", "up"}, rows)
	}
	for _, g := range s.Gone {
		fmt.Fprintf(&b, "gone: %s, last heard %s ago\n", terminal.Word(g.Worker), ageAt(g.Heard, s.At))
	}
	if rows = nil; slices.ContainsFunc(s.Topics, func(t dashboard.Topic) bool { return t.Waiting > 0 }) {
		for _, t := range s.Topics {
			if t.Waiting > 0 {
				rows = append(rows, []string{t.Topic, t.Kind, num(t.Waiting)})
			}
		}
		part("", []string{"topic", "kind", "wait"}, rows)
	}
	topLimits(&s.Limits, part)
	rows = nil
	for _, o := range s.Outcomes.Rows {
		rows = append(rows, []string{o.State, o.Lane, o.App, o.Type, o.Provider, o.Reason, num(o.N)})
	}
	part(fmt.Sprintf("%d since %s", s.Outcomes.Total, s.Since.Format("15:04")), []string{"state", "lane", "app", "type", "provider", "reason", "n"}, rows)
	for _, words := range s.Approximate {
		b.WriteString("~ " + terminal.Word(words) + "\n")
	}
	return b.String()
}

// topLimits tells what limits did in the last hour, and how near senders are to theirs.
func topLimits(l *dashboard.Limits, part func(before string, columns []string, rows [][]string)) {
	var rows [][]string
	for _, r := range l.Rules {
		rows = append(rows, []string{r.Rule, num(r.Stopped), num(r.PutOff), num(r.Users5m), num(r.Users1h)})
	}
	if len(rows) > 0 {
		part("", []string{"limit", "stopped", "put off", "users, 5 min~", "users, an hour~"}, rows)
	}
	rows = nil
	for _, one := range l.Senders {
		rows = append(rows, []string{one.Sender, one.Rule, fmt.Sprintf("%.0f %%", 100*one.Share), fmt.Sprintf("%d %%", slices.Max(one.Minutes)),
			fmt.Sprintf("%d in %s", one.Limit, inSeconds(one.Window)), num(one.Limited), inSeconds(one.Wait)})
	}
	if len(rows) > 0 {
		part("", []string{"sender", "rule", "used", "most in the hour", "of", "limited", "another waits"}, rows)
	}
}

func inSeconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// lampWords says what a route's lamp says.
func lampWords(r *dashboard.Route) string {
	words := r.Lamp
	switch {
	case r.Lamp == dashboard.LampSlowed:
		words += fmt.Sprintf(" %s of %s/s", perSecond(r.Rate), perSecond(r.Base))
	case r.Lamp == dashboard.LampPaused && !r.Until.IsZero():
		words += " until " + r.Until.Format("15:04:05")
	}
	if r.At < r.Workers {
		words += fmt.Sprintf(" (%d of %d)", r.At, r.Workers)
	}
	return words
}

func perSecond(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }
func num(n int64) string         { return strconv.FormatInt(n, 10) }

func ageAt(then, now time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return max(0, now.Sub(then)).Round(time.Second).String()
}
