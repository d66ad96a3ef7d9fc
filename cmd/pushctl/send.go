package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// defaultLane is the lane that send and load produce to by default.
const defaultLane = "transactional"

// sendFlags are the command line of send.
type sendFlags struct {
	message   messageFlags
	lane      string
	onError   onError
	dryRun    bool
	wait      time.Duration
	fromFlags bool // at least one flag of message was given
}

// messageFlags are a notification's fields, in the order of the JSON.
type messageFlags struct {
	ID          string            `json:"id"`
	App         string            `json:"app,omitempty"`
	UserID      string            `json:"user_id,omitempty"`
	Type        string            `json:"type,omitempty"`
	SenderID    string            `json:"sender_id,omitempty"`
	Campaign    string            `json:"campaign,omitempty"`
	Priority    string            `json:"priority,omitempty"`
	Title       string            `json:"title,omitempty"`
	Body        string            `json:"body,omitempty"`
	Data        map[string]string `json:"data,omitempty"`
	CollapseKey string            `json:"collapse_key,omitempty"`
	ExpiresAt   string            `json:"expires_at,omitempty"`

	data      []string
	expiresIn time.Duration
}

func newSendCommand(a *app) *cobra.Command {
	f := sendFlags{onError: stopAtError}
	cmd := &cobra.Command{
		Use:   "send --app APP --user USER [flags] | FILE|-",
		Short: "Send one notification, or those of a file",
		Long: `Send one notification made from flags, or every line of a file or of standard input ("-"). Each line is a
JSON object as described in docs/messages.md. Each notification is checked as a worker would check it. One
that would be dead-lettered is not produced: its line and the field at fault are reported, and the exit
status is 1.

Without --id, a notification from flags gets a new UUIDv7, which is printed in any case. A second
notification with the same id is a duplicate and is not sent. So after a failure you can send a file again,
because its lines have ids, and a notification from flags with the --id that was printed.

--wait reads the status store until every notification has its final outcome. The exit status is then 1
unless all were DELIVERED, which means accepted by the provider.`,
		Example: `  pushctl send --app shop --user u42 --title Hello --body "It works" --wait 30s
  pushctl send --app shop --user u42 --type otp --lane critical --expires-in 5m --data code=4711 --dry-run
  pushctl send --on-error skip --lane promotional campaign.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range messageFlagNames {
				f.fromFlags = f.fromFlags || cmd.Flags().Changed(name)
			}
			return a.send(cmd.Context(), args, f)
		},
	}
	flags := cmd.Flags()
	m := &f.message
	flags.StringVar(&m.ID, "id", "", "notification `id`; default: a new UUIDv7")
	flags.StringVar(&m.App, "app", "", "`name` of the app")
	flags.StringVar(&m.UserID, "user", "", "user `id`")
	flags.StringVar(&m.Type, "type", "", "message type, as in opt-outs and limits")
	flags.StringVar(&m.SenderID, "sender", "", "`id` of the sender, as in critical_senders of the lane")
	flags.StringVar(&m.Campaign, "campaign", "", "`name` of what it is a part of")
	flags.StringVar(&m.Priority, "priority", "", "critical, high, medium, low or bulk; default: the lane's")
	flags.StringVar(&m.Title, "title", "", "`text` of the title")
	flags.StringVar(&m.Body, "body", "", "`text` of the body")
	flags.StringArrayVar(&m.data, "data", nil, "`key=value` for the app; may be repeated")
	flags.StringVar(&m.CollapseKey, "collapse-key", "", "`key` of the notification that this one replaces on the device")
	flags.DurationVar(&m.expiresIn, "expires-in", 0, "`time` after which it is no longer sent, such as 5m")
	flags.StringVar(&f.lane, "lane", defaultLane, "`name` of the lane")
	flags.Var(&f.onError, "on-error", "with a file: stop at the first bad line, or skip bad lines")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check and print the JSON, send nothing")
	flags.DurationVar(&f.wait, "wait", 0, "`time` to wait for the outcome, such as 30s")
	return cmd
}

// messageFlagNames are the flags that describe a notification.
var messageFlagNames = []string{"id", "app", "user", "type", "sender", "campaign", "priority", "title", "body", "data", "collapse-key", "expires-in"}

// sentRow is a notification that was sent, in the JSON answer.
type sentRow struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome,omitempty"` // with --wait
}

// sendAnswer is the JSON answer of `pushctl send`.
type sendAnswer struct {
	Lane          string         `json:"lane"`
	Topic         string         `json:"topic"`
	Produced      int            `json:"produced"`
	Refused       int            `json:"refused"`
	Rules         map[string]int `json:"rules,omitempty"`
	StoppedAt     int            `json:"stopped_at_line,omitempty"`
	Notifications []sentRow      `json:"notifications"`
}

func (a *app) send(ctx context.Context, args []string, f sendFlags) error {
	lane, err := a.lane(f.lane)
	if err != nil {
		return err
	}
	switch {
	case len(args) > 0 && f.fromFlags:
		return usagef("send takes a notification from flags or notifications from a file, not both")
	case len(args) == 0 && !f.fromFlags:
		return usagef("send needs a notification: see pushctl send --help")
	case f.wait < 0:
		return usagef("--wait: must not be negative")
	}
	s := &sending{app: a, flags: f, refused: newRefusals(a.stderr), show: newProgress(a.stderr),
		answer: sendAnswer{Lane: lane.Name, Topic: lane.Topic, Notifications: []sentRow{}}}
	for _, app := range a.loaded.Apps {
		s.apps = append(s.apps, app.Name)
	}
	if f.wait > 0 && !f.dryRun {
		if s.store, err = a.statusStore(ctx); err != nil { // fail before anything is sent
			return err
		}
	}
	in := io.ReadCloser(nil)
	var single []byte
	if len(args) > 0 {
		if in, err = a.open(args[0]); err != nil {
			return err
		}
		defer in.Close()
	} else if single, err = f.message.encode(time.Now()); err != nil {
		return err
	} else if m, err := s.record(single); err != nil {
		return usageError{err}
	} else {
		s.single = m.ID
	}
	if !f.dryRun {
		if s.writer, err = a.laneWriter(ctx, lane.Topic, time.Millisecond); err != nil {
			return err
		}
	}
	if in == nil {
		in = io.NopCloser(bytes.NewReader(single))
	}
	err = s.run(ctx, in)
	s.show.end()
	switch {
	case err == nil:
		return s.finish(ctx)
	case s.single != "":
		s.tell("%s may or may not be in %s; to send it again, use --id %s", s.single, lane.Topic, s.single)
		return err
	}
	if f.dryRun {
		return err
	}
	return partlyf(err, "at least %d notifications are in %s; the command can be repeated", s.answer.Produced, lane.Topic)
}

// tell prints the id of a notification from flags on standard error: before
// the command may be killed, and also when it is interrupted. A repetition
// without the id would be another notification, and the user would get two.
func (s *sending) tell(format string, args ...any) {
	if s.single != "" {
		_, _ = fmt.Fprintf(s.app.stderr, format+"\n", args...)
	}
}

// encode is the record that the flags describe.
func (m messageFlags) encode(now time.Time) ([]byte, error) {
	if m.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("making an id: %w", err)
		}
		m.ID = id.String()
	}
	// encoding/json would make one character of all that is no text: another user, and another message.
	for _, flag := range [...]struct{ name, text string }{{"id", m.ID}, {"app", m.App}, {"user", m.UserID}, {"type", m.Type}, {"sender", m.SenderID}, {"campaign", m.Campaign},
		{"priority", m.Priority}, {"title", m.Title}, {"body", m.Body}, {"data", strings.Join(m.data, "\n")}, {"collapse-key", m.CollapseKey}} {
		if !utf8.ValidString(flag.text) {
			return nil, usagef("--%s: not UTF-8", flag.name)
		}
	}
	for _, kv := range m.data {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("--data: want key=value")
		}
		if m.Data == nil {
			m.Data = make(map[string]string)
		}
		m.Data[k] = v
	}
	switch {
	case m.expiresIn < 0:
		return nil, usagef("--expires-in: must not be negative")
	case m.expiresIn > 0:
		m.ExpiresAt = now.Add(m.expiresIn).UTC().Format(time.RFC3339)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("encoding the notification: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// sendBatch is how many notifications are produced with one append.
const sendBatch = 1000

// sending is one run.
type sending struct {
	app     *app
	flags   sendFlags
	apps    []string // of the configuration; empty = any app
	single  string   // the id of a notification from flags; empty with a file
	store   reach.Rows
	writer  *kafka.Writer // nil with --dry-run
	refused *refusals
	show    *progress
	answer  sendAnswer
	batch   []kafka.Record
	ids     []sentRow // of batch
}

func (s *sending) run(ctx context.Context, in io.Reader) error {
	var failed error
	for l := range readLines(in, &failed) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := l.err
		if err == nil {
			err = s.take(l.text)
		}
		if err != nil {
			s.show.end()
			s.refused.add(l.number, err)
			if s.flags.onError == stopAtError {
				s.answer.StoppedAt = l.number
				break
			}
			continue
		}
		if len(s.batch) == sendBatch {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
	}
	if failed != nil {
		return fmt.Errorf("reading: %w", failed)
	}
	return s.flush(ctx)
}

// record decodes a notification and checks it as a worker would.
func (s *sending) record(value []byte) (*push.Message, error) {
	m := new(push.Message)
	if defect := decode.Message(value, m); defect != nil {
		return nil, defect
	}
	if len(s.apps) > 0 && !slices.Contains(s.apps, m.App) {
		return nil, &push.Defect{Reason: push.UnknownApp, Field: "app"}
	}
	return m, nil
}

func (s *sending) take(text []byte) error {
	value := bytes.Clone(text)
	m, err := s.record(value)
	if err != nil {
		return err
	}
	it := pipeline.Item{Message: *m}
	s.batch = append(s.batch, kafka.Record{Key: []byte(it.Owner()), Value: value})
	s.ids = append(s.ids, sentRow{ID: strings.Clone(m.ID)})
	return nil
}

func (s *sending) flush(ctx context.Context) error {
	if len(s.batch) == 0 {
		return nil
	}
	if s.writer == nil {
		for _, r := range s.batch {
			if _, err := s.app.stdout.Write(append(terminal.EscapeJSON(r.Value), '\n')); err != nil {
				return fmt.Errorf("writing the answer: %w", err)
			}
		}
	} else {
		if err := s.writer.Append(ctx, s.batch); err != nil {
			return err
		}
		s.answer.Produced += len(s.batch)
		s.answer.Notifications = append(s.answer.Notifications, s.ids...)
		s.show.line("%d notifications, %d lines refused", s.answer.Produced, s.refused.count)
	}
	s.batch, s.ids = s.batch[:0], s.ids[:0]
	return nil
}

// finish waits for the outcomes, if --wait was given, and prints the answer.
func (s *sending) finish(ctx context.Context) error {
	s.answer.Refused, s.answer.Rules = s.refused.count, s.refused.rules
	delivered, failed := true, error(nil)
	if s.store != nil {
		s.tell("%s is in %s; waiting for its outcome", s.single, s.answer.Topic)
		delivered, failed = s.await(ctx)
		s.show.end()
	}
	if s.writer != nil {
		if err := s.app.show(s.explain()); err != nil {
			return err
		}
	}
	if failed != nil {
		s.tell("see `pushctl status %s`; to send it again, use --id %s", s.single, s.single)
		return failed
	}
	if s.refused.count > 0 || !delivered {
		return errDifference
	}
	return nil
}

func (s *sending) explain() terminal.Answer {
	ans := terminal.Answer{Value: s.answer, Table: terminal.Table{Columns: []string{"id", "topic"}}}
	if s.store != nil {
		ans.Table.Columns = append(ans.Table.Columns, "outcome")
	}
	for _, n := range s.answer.Notifications {
		cells := []string{n.ID, s.answer.Topic}
		if s.store != nil {
			cells = append(cells, n.Outcome)
		}
		ans.Table.Add(cells...)
	}
	if s.refused.count > 0 {
		ans.After = fmt.Sprintf("%d produced, %d lines refused", s.answer.Produced, s.answer.Refused)
	}
	return ans
}
