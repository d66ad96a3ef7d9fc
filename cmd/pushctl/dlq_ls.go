package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
)

// lsFlags are the command line of dlq ls.
type lsFlags struct {
	letterFlags
	limit  int
	reveal bool
}

func newDLQLsCommand(a *app) *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List dead letters, the newest last",
		Long: `List the dead letters that nobody has redriven or dismissed (--all: all of them) in the order of time.
If there are more than --limit, the newest are listed.

Other commands identify a dead letter by its place (topic/partition/offset). "Tries" counts the attempts
at the provider before the last one. Message text is shown only with --reveal.`,
		Example: "  pushctl dlq ls --since 24h\n  pushctl dlq ls --lane transactional --reason retries_used_up --provider fcm\n  pushctl dlq ls --app shop --sender orders --since 2026-11-20 --until 2026-11-21 --limit 0 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listDLQ(cmd.Context(), &f) },
	}
	f.flags(cmd.Flags())
	cmd.Flags().IntVar(&f.limit, "limit", 100, "at most `n`, the newest; 0 = all")
	cmd.Flags().BoolVar(&f.reveal, "reveal", false, revealHelp)
	return cmd
}

// revealHelp is the help of every --reveal.
const revealHelp = "print message text and device tokens, with a warning on standard error"

// sayRevealed warns those who watch the screen or redirect the output.
func (a *app) sayRevealed() {
	_, _ = fmt.Fprintln(a.stderr, "pushctl: --reveal: the output contains message text and device tokens")
}

func (a *app) listDLQ(ctx context.Context, f *lsFlags) error {
	filter, err := f.filter()
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	defer show.end()
	opts := dlq.ListOptions{Filter: filter, Limit: f.limit, Reveal: f.reveal, Progress: show.reading}
	if err := opts.Check(); err != nil {
		return optionUsage(err)
	}
	queues, err := a.deadLetters(filter.Lanes...)
	if err != nil {
		return err
	}
	letters, older, err := queues.List(ctx, opts)
	show.end()
	if err != nil {
		return err
	}
	if f.reveal {
		for i := range letters {
			letters[i].Value = listedValue(letters[i].Value)
		}
		a.sayRevealed()
	}
	return a.show(explainLetters(letters, older, f.reveal))
}

// listedValue is a revealed value as a table cell; empty for a record without
// a value.
func listedValue(value *string) *string {
	text := ""
	if value != nil {
		text = strings.ToValidUTF8(*value, "\ufffd")
	}
	return &text
}

func explainLetters(rows []dlq.Letter, left int, reveal bool) terminal.Answer {
	t := terminal.Table{Columns: []string{"time", "place", "id", "app", "sender", "reason", "detail", "provider", "tries", "redrives", "expired", "mark"}}
	if reveal {
		t.Columns = append(t.Columns, "value")
	}
	for _, r := range rows {
		cells := []string{r.Time.Format(time.DateTime), r.Place, r.ID, r.App, r.Sender, r.Reason, r.Detail, strings.Join(r.Providers, ","),
			strconv.Itoa(r.Attempts), strconv.Itoa(r.Redrives), yes(r.Expired), markWords(r.Mark)}
		if r.Problem != "" {
			cells[6] = r.Problem
		}
		if r.Value != nil {
			cells = append(cells, *r.Value)
		}
		for i := range cells {
			cells[i] = short(cells[i], r.Value != nil && i == len(cells)-1)
		}
		t.Add(cells...)
	}
	ans := terminal.Answer{Value: rows, Table: t}
	switch {
	case len(rows) == 0:
		ans.After = "no dead letters"
	case left > 0:
		ans.After = fmt.Sprintf("%d dead letters, and %d older ones: --limit shows more", len(rows), left)
	default:
		ans.After = fmt.Sprintf("%d dead letters", len(rows))
	}
	return ans
}

// markWords are a mark in words: "redriven by ann 2026-11-21 10:00:00".
func markWords(m *dlq.Mark) string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s by %s %s", m.What, m.By, m.At.Format(time.DateTime))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// short cuts a cell to 64 characters, unless it is to be shown whole.
func short(s string, whole bool) string {
	const most = 64
	if whole || utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
