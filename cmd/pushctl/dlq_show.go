package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/kafka"
)

func newDLQShowCommand(a *app) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use:   "show ID|PLACE",
		Short: "All that is known of a dead letter, its text masked",
		Long: `All dead letters of a notification ID, also those that were redriven or dismissed, or the one at a PLACE
(topic/partition/offset, as ls prints it; a record without a usable id has the id kafka:…): why, where it came from, how often it was tried, its headers
and the fields of its message. Text and tokens are masked unless --reveal asks for them; a device is
known by the hash of its token. Exit status 1 if there is none.`,
		Example: "  pushctl dlq show 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21\n  pushctl dlq show push.transactional.dlq/3/17 --reveal",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.showLetter(cmd.Context(), args[0], reveal) },
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, revealHelp)
	return cmd
}

// letterView is a dead letter with all that is known of it.
type letterView struct {
	letterRow
	Meaning  string  `json:"meaning"`   // of the reason, in words
	StatusID string  `json:"status_id"` // for `pushctl status`; empty = not known
	Key      string  `json:"key"`
	Headers  []field `json:"headers"` // in their order
	Bytes    int     `json:"bytes"`
	Fields   []field `json:"fields"` // of the value, masked
}

func (a *app) showLetter(ctx context.Context, word string, reveal bool) error {
	var views []letterView
	take := func(l letter) error {
		views = append(views, l.view(time.Now(), reveal))
		return nil
	}
	var err error
	if topic, place, ok := cutTopic(word); ok {
		err = a.letterAt(ctx, topic, place, take)
	} else {
		show := newProgress(a.stderr)
		err = a.eachLetter(ctx, &letterFilter{all: true}, show, func(l letter) error {
			if l.message.ID != word && l.statusID() != word {
				return nil
			}
			return take(l)
		})
		show.end()
	}
	if err != nil {
		return err
	}
	if reveal && len(views) > 0 {
		a.sayRevealed()
	}
	if a.format == terminal.FormatJSON {
		if views == nil {
			views = []letterView{}
		}
		err = terminal.WriteJSON(a.stdout, views, indent)
	} else {
		err = writeViews(a.stdout, word, views)
	}
	if err == nil && len(views) == 0 {
		return errDifference
	}
	return err
}

// letterAt hands out the dead letter at this place, if it is there.
func (a *app) letterAt(ctx context.Context, topic string, place kafka.Place, take func(letter) error) error {
	lanes, err := a.dlqLanes([]string{topic})
	if err != nil {
		return err
	}
	q, marks, err := a.openDLQ(ctx, lanes[0], false)
	if err != nil {
		return err
	}
	there, err := q.Since(ctx, time.Time{})
	if err != nil {
		return err
	}
	if r, ok := there[place.Partition]; !ok || place.Offset < r.From || place.Offset >= r.To {
		return nil
	}
	err = q.Read(ctx, kafka.Extent{place.Partition: {From: place.Offset, To: place.Offset + 1}}, func(d *kafka.DeadLetter) error {
		return take(newLetter(lanes[0], d, marks))
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// headerLongest is how much of a header's value is shown.
const headerLongest = 512

func (l *letter) view(now time.Time, reveal bool) letterView {
	v := letterView{letterRow: l.row(now), Meaning: meaning(l.Reason, l.Detail), StatusID: strings.Clone(l.statusID()), Bytes: len(l.Value), Headers: []field{}, Fields: []field{}}
	v.Key = l.key(reveal)
	for _, h := range l.Headers {
		text := string(h.Value)
		// What producers put into headers of their own may be anything.
		if ours := strings.HasPrefix(h.Key, "pf-") || h.Key == "traceparent"; !ours && !reveal {
			text = fmt.Sprintf("<%d bytes>", len(h.Value))
		}
		v.Headers = append(v.Headers, field{h.Key, text[:min(len(text), headerLongest)]})
	}
	if l.Value != nil {
		v.Fields = maskedFields(l.Value)
		if reveal {
			text := revealedValue(l.Value)
			v.Value = &text
		}
	}
	return v
}

// key is the record's key. It should be the user's id, and may be a token.
func (l *letter) key(reveal bool) string {
	if reveal || string(l.Key) == l.message.UserID && l.defect == nil {
		return string(l.Key)
	}
	return fmt.Sprintf("<%d bytes>", len(l.Key))
}

// writeViews writes what a person reads: one name and value a line.
func writeViews(w io.Writer, word string, views []letterView) error {
	var b strings.Builder
	if len(views) == 0 {
		fmt.Fprintf(&b, "no dead letter %s: never dead-lettered, purged, or older than the DLQ keeps\n", terminal.Word(word))
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
		line("mark", v.Mark.String())
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

// ctlStatus is the command that looks an id up.
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
