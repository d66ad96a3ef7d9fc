package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
)

// lsFlags are the command line of dlq ls.
type lsFlags struct {
	letterFilter
	limit  int
	reveal bool
}

func newDLQLsCommand(a *app) *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "Dead letters, the newest last",
		Long: `Dead letters that nobody has redriven or dismissed yet (--all: those too), in the order of time. With
more than --limit it is the newest that are shown.

The place (topic/partition/offset) is what the other commands know a dead letter by. "Tries" are the
provider attempts before the last one. Message text is not shown unless --reveal asks for it.`,
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
const revealHelp = "print message text and device tokens; says so on standard error"

// sayRevealed warns whoever reads along, or pipes the output somewhere.
func (a *app) sayRevealed() {
	_, _ = fmt.Fprintln(a.stderr, "pushctl: --reveal: what follows has message text and device tokens in the clear")
}

// letterRow is a dead letter as scripts see it.
type letterRow struct {
	Place     string     `json:"place"`
	Time      time.Time  `json:"time"` // of dead-lettering
	Lane      string     `json:"lane"`
	ID        string     `json:"id"` // of the notification; empty if it cannot be decoded
	App       string     `json:"app"`
	Sender    string     `json:"sender"`
	Type      string     `json:"type"`
	Reason    string     `json:"reason"`
	Detail    string     `json:"detail"`
	Providers []string   `json:"providers"`
	Attempts  int        `json:"attempts"`
	Hops      int        `json:"hops"`
	Redrives  int        `json:"redrives"`
	Devices   []string   `json:"devices"` // hashes; empty = all
	Origin    string     `json:"origin"`
	FirstSeen *time.Time `json:"first_seen"`
	ExpiresAt *time.Time `json:"expires_at"` // the earlier of its own and the lane's greatest age
	Expired   bool       `json:"expired"`
	Mark      *markRow   `json:"mark"`
	Problem   string     `json:"problem"` // why its headers could not be read
	Value     *string    `json:"value,omitempty"`
}

// markRow is what an operator did with a dead letter.
type markRow struct {
	What string    `json:"what"`
	At   time.Time `json:"at"`
	By   string    `json:"by"`
}

// row is the letter without its text. It keeps nothing of the record's memory.
func (l *letter) row(now time.Time) letterRow {
	r := letterRow{Place: l.String(), Time: l.Timestamp.UTC(), Lane: l.lane.Name, ID: strings.Clone(l.message.ID), App: strings.Clone(l.message.App), Sender: strings.Clone(l.message.SenderID),
		Type: strings.Clone(l.message.Type), Reason: l.Reason, Detail: l.Detail, Providers: notNil(l.providers()), Attempts: l.Attempt, Hops: l.Hops, Redrives: l.Redrive,
		Devices: notNil(l.Devices), Origin: l.Origin, FirstSeen: utc(l.FirstSeen), ExpiresAt: utc(l.expires()), Expired: l.expired(now)}
	if l.marked {
		r.Mark = &markRow{What: l.mark.What, At: l.mark.At.UTC(), By: l.mark.By}
	}
	if l.Problem != nil {
		r.Problem = l.Problem.Error()
	}
	return r
}

// utc is a time for scripts; nil when it is not known.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func (a *app) listDLQ(ctx context.Context, f *lsFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.limit < 0 {
		return usagef("--limit: must be 0 or more")
	}
	show := newProgress(a.stderr)
	defer show.end()
	now := time.Now()
	var rows []letterRow
	left := 0
	newest := func(n int) {
		slices.SortStableFunc(rows, func(x, y letterRow) int { return x.Time.Compare(y.Time) })
		if n > 0 && len(rows) > n {
			left += len(rows) - n
			rows = slices.Delete(rows, 0, len(rows)-n)
		}
	}
	err := a.eachLetter(ctx, &f.letterFilter, show, func(l letter) error {
		r := l.row(now)
		if f.reveal {
			value := strings.ToValidUTF8(string(l.Value), "\ufffd")
			r.Value = &value
		}
		if rows = append(rows, r); f.limit > 0 && len(rows) >= 2*f.limit+1000 {
			newest(f.limit)
		}
		return nil
	})
	show.end()
	if err != nil {
		return err
	}
	newest(f.limit)
	if f.reveal {
		a.sayRevealed()
	}
	return a.show(explainLetters(rows, left, f.reveal))
}

func explainLetters(rows []letterRow, left int, reveal bool) terminal.Answer {
	t := terminal.Table{Columns: []string{"time", "place", "id", "app", "sender", "reason", "detail", "provider", "tries", "redrives", "expired", "mark"}}
	if reveal {
		t.Columns = append(t.Columns, "value")
	}
	for _, r := range rows {
		cells := []string{r.Time.Format(time.DateTime), r.Place, r.ID, r.App, r.Sender, r.Reason, r.Detail, strings.Join(r.Providers, ","),
			strconv.Itoa(r.Attempts), strconv.Itoa(r.Redrives), yes(r.Expired), r.Mark.String()}
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
	if rows == nil {
		rows = []letterRow{}
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

// String is "redriven by you 2026-11-21 10:00:00".
func (m *markRow) String() string {
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

// short keeps one cell from filling the screen.
func short(s string, whole bool) string {
	const most = 64
	if whole || utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
