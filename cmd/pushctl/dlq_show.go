package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/explain"
)

func newDLQShowCommand(a *app) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use:   "show ID|PLACE",
		Short: "Show everything about a dead letter, with its text masked",
		Long: `Show all dead letters of a notification ID, including those that were redriven or dismissed, or the one at
a PLACE (topic/partition/offset, as ls prints it). A record without a usable id has the id kafka:…. The
answer has the reason, the origin, the number of attempts, the headers and the fields of the message.
Text and tokens are masked unless --reveal is given; a device is identified by the hash of its token.
Exit status 1 if there is none.`,
		Example: "  pushctl dlq show 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21\n  pushctl dlq show push.transactional.dlq/3/17 --reveal",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.showLetter(cmd.Context(), args[0], reveal) },
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, revealHelp)
	return cmd
}

// letterView is a dead letter in the JSON answer.
type letterView struct {
	dlq.Letter
	Meaning string `json:"meaning"` // of the reason, in words
	dlq.Contents
}

// viewOf adds the meaning, and makes a revealed value safe to print.
func viewOf(v dlq.View) letterView {
	if v.Value != nil {
		text := revealedValue([]byte(*v.Value))
		v.Value = &text
	}
	return letterView{v.Letter, explain.Reason(v.Reason, v.Detail), v.Contents}
}

func (a *app) showLetter(ctx context.Context, word string, reveal bool) error {
	queues, err := a.deadLetters()
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	found, err := queues.Show(ctx, word, dlq.ShowOptions{Reveal: reveal, Progress: show.reading})
	show.end()
	if err != nil {
		return optionUsage(err)
	}
	if reveal && len(found) > 0 {
		a.sayRevealed()
	}
	views := make([]letterView, len(found))
	for i, v := range found {
		views[i] = viewOf(v)
	}
	if a.format == terminal.FormatJSON {
		err = terminal.WriteJSON(a.stdout, views, indent)
	} else {
		err = writeViews(a.stdout, word, views)
	}
	if err == nil && len(views) == 0 {
		return errDifference
	}
	return err
}

// revealedValue is a dead letter's value: indented if it is JSON, and quoted
// otherwise, so that a terminal interprets no part of it.
func revealedValue(value []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, value, "", "  ") != nil {
		return strconv.Quote(string(value))
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = terminal.Word(lines[i])
	}
	return strings.Join(lines, "\n")
}

// writeViews writes the answer for people: one name and value per line.
func writeViews(w io.Writer, word string, views []letterView) error {
	var b strings.Builder
	if len(views) == 0 {
		fmt.Fprintf(&b, "no dead letter %s: never dead-lettered, purged, or older than the DLQ's retention\n", terminal.Word(word))
	}
	for i, v := range views {
		if i > 0 {
			b.WriteString("\n")
		}
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "%-13s %s\n", name, terminal.Word(value))
			}
		}
		line("place", v.Place)
		line("time", v.Time.Format(time.RFC3339))
		line("notification", v.ID)
		line("status", ctlStatus(v.StatusID))
		line("reason", strings.TrimSuffix(v.Reason+": "+v.Detail, ": "))
		line("", v.Meaning)
		line("problem", v.Problem)
		line("lane", v.Lane)
		line("app", v.App)
		line("sender", v.Sender)
		line("type", v.Type)
		line("key", v.Key)
		line("origin", v.Origin)
		line("first seen", timeOf(v.FirstSeen))
		line("expires", timeOf(v.ExpiresAt)+map[bool]string{true: " (has expired)"}[v.Expired])
		line("attempts", strconv.Itoa(v.Attempts))
		line("hops", strconv.Itoa(v.Hops))
		line("redrives", strconv.Itoa(v.Redrives))
		line("devices", strings.Join(v.Devices, ", "))
		line("provider", strings.Join(v.Providers, ", "))
		line("mark", markWords(v.Mark))
		for _, h := range v.Headers {
			line("header", h.Name+": "+h.Value)
		}
		line("value", fmt.Sprintf("%d bytes", v.Bytes))
		if v.Value != nil {
			b.WriteString(*v.Value + "\n")
			continue
		}
		for _, f := range v.Fields {
			line("  "+terminal.Word(f.Name), f.Value)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// ctlStatus is the command that shows the status of an id.
func ctlStatus(id string) string {
	if id == "" {
		return ""
	}
	return "pushctl status " + id
}

func timeOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339)
}
