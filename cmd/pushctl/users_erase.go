package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/users/erase"
	"github.com/pushfleet/pushfleet/wiring"
)

// eraseFlags are the command line of users erase.
type eraseFlags struct {
	yes, dryRun bool
	wait        time.Duration
}

func newEraseCommand(a *app) *cobra.Command {
	f := eraseFlags{}
	cmd := &cobra.Command{
		Use:   "erase USER",
		Short: "Erase a user everywhere, and say what remains until when; a dry run without --yes",
		Long: `Erase what the fleet keeps of a user: devices, preferences, profile and personal limits, and in Redis the record made
of them, the entries of the token index, limiter states and collapse keys, and in Cassandra what rules of devices
count, if limits.devices says so, subscriptions, if gateway.topics does, the inboxes of all configured apps, if a
lane's inbox or gateway.inbox does, what apps reported, if gateway.clicks does, and that the user uses the configured
apps, if registry.audiences or gateway.audiences does, and in journals, if a lane has one. The answer counts what was found and what is left, and lists what only time removes,
such as status rows (which have a hash of the user's id) and records of topics.

The command reads the user's partition of push.users from its start, so it also finds what Redis does not
show: devices that are one too many or cannot be read, and parts that only a newer version knows. It appends a
tombstone for each, waits until the registry has applied them (--wait), and then deletes limiter states, collapse
keys and those rows, because by then no notification finds a device any more. What is registered or set after the command has
ended holds, as with a new user; what comes while it runs may be erased with the rest.

It may be repeated, and should be after an error, an interruption, or if the registry did not apply it in time. A
user who does not exist is no error. The exit status is 1 if the registry has not applied the tombstones in time.`,
		Example: "  pushctl users erase u42\n  pushctl users erase u42 --yes --wait 2m\n  pushctl users erase u42 --yes -o json | jq .left",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.erase(cmd.Context(), args[0], f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.yes, "yes", false, "do it")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what there is, as without --yes")
	flags.DurationVar(&f.wait, "wait", 30*time.Second, "`time` to wait for the registry; 0 = do not wait")
	return cmd
}

// eraseCounts are how much there is of a user, in the JSON answer.
type eraseCounts struct {
	Devices     int `json:"devices"`
	Preferences int `json:"preferences"` // 0 or 1, as the next two
	Profile     int `json:"profile"`
	Limits      int `json:"personal_limits"`
	Others      int `json:"other_parts"`
	Record      int `json:"user_record"` // 0 or 1
	Tokens      int `json:"token_index_entries"`
	Limiters    int `json:"limiter_states"`
	Collapse    int `json:"collapse_keys"`
	DeviceRows  int `json:"device_limit_rows"` // in Cassandra
	Subscribed  int `json:"subscriptions"`     // in Cassandra, of topics that the user has left too
	Inbox       int `json:"inbox_entries"`     // in Cassandra, of all apps
	Clicks      int `json:"reports"`           // in Cassandra: clicks and who unsubscribed
	Audiences   int `json:"audiences"`         // in Cassandra: apps that the user is noted to use
	Journal     int `json:"journal_entries"`   // in Cassandra: notifications that were meant for the user
}

// remaining is what only time removes, in the JSON answer.
type remaining struct {
	Where string `json:"where"`
	What  string `json:"what"`
	Until string `json:"until"`
}

// eraseAnswer is the JSON answer of `pushctl users erase`.
type eraseAnswer struct {
	UserID     string      `json:"user_id"`
	UserHash   string      `json:"user_hash"` // as `pushctl status` shows it
	DryRun     bool        `json:"dry_run"`
	Found      eraseCounts `json:"found"`
	Tombstones int         `json:"tombstones"`
	// Applied: the registry has applied the tombstones, and what came with them.
	Applied bool        `json:"applied"`
	Left    eraseCounts `json:"left"`
	Remains []remaining `json:"remains"`
}

// erasing is one run of the command.
type erasing struct {
	app     *app
	user    string
	client  shards.Client
	erasure *erase.Erasure
	owners  []string             // of limiter states and collapse keys: the user, and devices named without one
	had     []string             // devices that are the user's, or were; and the user, who may be the hash of one
	devices *limits.DeviceLog    // nil = rules of devices count in Redis
	topics  *subscriptions.Store // nil = there are none
	inboxes *erasedInboxes       // nil = none are kept
	clicks  erasedRows           // nil = none are kept
	members *erasedAudiences     // nil = it is not noted who uses an app
	journal erasedRows           // nil = no lane has one
	show    *progress
	answer  eraseAnswer
}

// openTables opens the tables of Cassandra that may have something of the user. Of an id that they
// cannot have there is nothing: it is of a time with other rules, or no text.
func (e *erasing) openTables(ctx context.Context, c *configs.Config) (err error) {
	if e.members, err = e.app.audiencesOf(ctx, c, e.user); err != nil {
		return err
	}
	if subscriptions.CheckUser(e.user) == nil {
		if e.topics, err = e.app.topicsStore(ctx, c); err != nil {
			return err
		}
	}
	if !utf8.ValidString(e.user) {
		return nil
	}
	if e.inboxes, err = e.app.inboxes(ctx, c, e.user); err != nil {
		return err
	}
	if e.clicks, err = e.app.clicksStore(ctx, c); err != nil {
		return err
	}
	e.journal, err = e.app.journalStore(ctx, c)
	return err
}

func (a *app) erase(ctx context.Context, user string, f eraseFlags) error {
	switch {
	case f.yes && f.dryRun:
		return usagef("users erase takes either --yes or --dry-run")
	case f.wait < 0:
		return usagef("--wait: must not be negative")
	}
	c, err := a.config()
	if err != nil {
		return err
	}
	e, err := a.newErasing(ctx, user)
	if err != nil {
		return err
	}
	defer e.show.end()
	if e.devices, err = a.deviceLog(ctx); err != nil {
		return err
	}
	if err := e.openTables(ctx, c); err != nil {
		return err
	}
	found, err := e.look(ctx)
	if err != nil {
		return err
	}
	e.answer.Found, e.answer.DryRun, e.answer.Remains = e.answer.Left, !f.yes, remainsOf(c, user, found)
	if f.yes {
		if err := e.do(ctx, f.wait); err != nil {
			return partlyf(err, "%d tombstones are in %s; the command can be repeated", e.answer.Tombstones, kafka.UsersTopic)
		}
	}
	e.show.end()
	if err := a.show(explainErased(&e.answer, f.wait)); err != nil {
		return err
	}
	if f.yes && f.wait > 0 && !e.answer.Applied {
		return fmt.Errorf("the tombstones are in %s, but were not applied within %v: is `pushworker registry` running? Repeat the command when it is", kafka.UsersTopic, f.wait)
	}
	return nil
}

func (a *app) newErasing(ctx context.Context, user string) (*erasing, error) {
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	log, err := a.usersLog(ctx)
	if err != nil {
		return nil, err
	}
	opts, err := a.kafkaOptions()
	if err != nil {
		return nil, err
	}
	history, err := wiring.NewUsersHistory(opts)
	if err != nil {
		return nil, err
	}
	a.onClose(history.Close)
	erasure, err := erase.New(log, history, client, user)
	if err != nil {
		return nil, invalidIsUsage(err)
	}
	show := newProgress(a.stderr)
	if a.format != terminal.FormatTable {
		show = newProgress(io.Discard)
	}
	history.Progress = show.readingUsers(time.Now())
	return &erasing{app: a, user: user, client: client, erasure: erasure, owners: []string{user}, had: []string{user}, show: show,
		answer: eraseAnswer{UserID: user, UserHash: strconv.FormatUint(push.UserHash(user), 16)}}, nil
}

// readingUsers shows how much of a user's partition of push.users has been read.
func (p *progress) readingUsers(began time.Time) func(records int, share float64) {
	return func(records int, share float64) {
		p.line("%s: %.0f %% of the user's partition read, %d records, %.0f/s", kafka.UsersTopic, 100*share, records, float64(records)/time.Since(began).Seconds())
	}
}

// look counts what there is now into answer.Left.
func (e *erasing) look(ctx context.Context) (erase.Remains, error) {
	r, err := e.erasure.Look(ctx)
	if err != nil {
		return r, err
	}
	e.owners, e.had = union(e.owners, r.Owned), union(e.had, r.Had) // also of an earlier look
	one := map[bool]int{true: 1}
	left := eraseCounts{Devices: r.Devices, Preferences: one[r.Preferences], Profile: one[r.Profile], Limits: one[r.Limits],
		Others: r.Others, Record: one[r.Record], Tokens: r.Tokens}
	for _, kind := range []struct {
		key func(int, string) string
		n   *int
	}{{shards.LimiterKey, &left.Limiters}, {shards.CollapseKey, &left.Collapse}} {
		if *kind.n, err = shards.Count(ctx, e.client, shards.Keys(e.owners, kind.key)); err != nil {
			return r, err
		}
	}
	err = e.eachDevices(func(owner string, devices []string) error {
		rows, err := e.devices.Count(ctx, owner, devices, time.Now())
		left.DeviceRows += rows
		return err
	})
	if err == nil && e.topics != nil {
		left.Subscribed, err = e.topics.Count(ctx, e.user)
	}
	if err == nil && e.inboxes != nil {
		left.Inbox, err = e.inboxes.count(ctx)
	}
	if err == nil && e.clicks != nil {
		left.Clicks, err = e.clicks.Count(ctx, e.user)
	}
	if err == nil && e.members != nil {
		left.Audiences, err = e.members.count(ctx)
	}
	if err == nil && e.journal != nil {
		left.Journal, err = e.journal.Count(ctx, e.user)
	}
	e.answer.Left = left
	return r, err
}

// union appends those of more that are not in all.
func union(all, more []string) []string {
	for _, one := range more {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// eachDevices calls do with each owner of rows in Cassandra and what it has there.
func (e *erasing) eachDevices(do func(owner string, devices []string) error) error {
	if e.devices == nil {
		return nil
	}
	for _, owner := range e.owners {
		devices := []string{owner} // what names a device and no user is both
		if owner == e.user {
			devices = e.had // also those that are somebody else's now: the rows are of both
		}
		if err := do(owner, devices); err != nil {
			return err
		}
	}
	return nil
}

// do erases. Limiter states, collapse keys, rows of devices and inboxes go last: until the devices are
// gone, a notification writes them anew.
func (e *erasing) do(ctx context.Context, wait time.Duration) (err error) {
	if e.answer.Tombstones, err = e.erasure.Append(ctx); err != nil {
		return err
	}
	if wait > 0 {
		within, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		switch err := e.erasure.Await(within); {
		case err == nil:
			e.answer.Applied = true
		case ctx.Err() != nil || within.Err() == nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
	if _, err := limits.Forget(ctx, e.client, e.owners...); err != nil {
		return err
	}
	if _, err := collapse.Forget(ctx, e.client, e.owners...); err != nil {
		return err
	}
	err = e.eachDevices(func(owner string, devices []string) error { return e.devices.Forget(ctx, owner, devices, time.Now()) })
	if err == nil && e.topics != nil {
		err = e.topics.Forget(ctx, e.user)
	}
	if err == nil && e.inboxes != nil {
		err = e.inboxes.forget(ctx)
	}
	if err == nil && e.clicks != nil {
		err = e.clicks.Forget(ctx, e.user)
	}
	if err == nil && e.members != nil {
		err = e.members.forget(ctx)
	}
	if err == nil && e.journal != nil {
		err = e.journal.Forget(ctx, e.user)
	}
	if err != nil {
		return err
	}
	_, err = e.look(ctx)
	return err
}

// topicsStore is where topics and who has subscribed are; nil = there are none.
func (a *app) topicsStore(ctx context.Context, c *configs.Config) (*subscriptions.Store, error) {
	if !c.Gateway.Topics {
		return nil, nil
	}
	session, err := a.cassandraTables(ctx)
	if err != nil {
		return nil, err
	}
	return subscriptions.New(subscriptions.Options{Tables: session}), nil
}

// remainsOf is what the command cannot remove.
func remainsOf(c *configs.Config, user string, found erase.Remains) []remaining {
	number := "the user's number, if there is one"
	if found.HasNumber {
		number = "the user's number, " + strconv.FormatUint(uint64(found.Number), 10)
	}
	list := []remaining{
		{"status rows", "outcomes of the user's notifications: no user id, but its hash " + strconv.FormatUint(push.UserHash(user), 16),
			c.Cassandra.TTL.String() + " after each was written (cassandra.ttl)"},
		{"lanes, retry, hold and DLQ topics", waiting(c),
			c.Kafka.Topics.Retention.String() + " after each was written (kafka.topics.retention), or as the topic is set; `pushctl dlq purge`"},
		{"push.feedback, push.events", "reports of dead tokens with the user's id; failures by notification and device hash", "the topics' retention"},
		{"push.users, push.users.quarantine", "earlier records, and the tombstones, whose keys have the user's id",
			"Kafka has compacted them (segment.ms, max.compaction.lag.ms); tombstones delete.retention.ms longer"},
		{"segments", number, "the next file is built without it"},
		{"Redis", "limiter state and collapse key of a notification that a worker was just deciding", "their windows end, or the command is repeated"},
	}
	if c.Limits.Devices.InCassandra() {
		list = append(list, remaining{"device_limit_days, device_limit_times", "what devices got that had left the user before, by a hash of user and device; no user id", "2 days after each was sent"})
	}
	if keepsInboxes(c) {
		list = append(list,
			remaining{"inbox, inbox_read", "what was kept for an app that the configuration no longer names", c.Inbox.TTL.String() + " after each message (inbox.ttl); how far it is read, until the command is repeated with the app in apps"},
			remaining{"inbox_news", "a hash of user and app, of what came last", "10 minutes"})
	}
	if c.Gateway.Clicks.Enabled {
		list = append(list, remaining{"click tokens", "in notifications on devices: what is reported by them later is kept again", c.Gateway.Clicks.Valid.String() + " after each was sent (gateway.clicks.valid); repeat the command then"})
	}
	if notesAudiences(c) {
		list = append(list, remaining{"app_users", "that the user used an app that the configuration no longer names", "the command is repeated with the app in apps"})
	}
	return list
}

// waiting says what notifications that are still to be sent come to.
func waiting(c *configs.Config) string {
	what := "notifications with the user's id and their text; those still to be sent find no device, unless they name one"
	if c.KeepsJournals() {
		what += ", and are noted in the user's journal (lanes[].journal): repeat the command when they are over"
	}
	if c.KeepsInboxes() {
		what += ", and go to the user's inbox where the lane has inbox: repeat the command when they are over"
	}
	return what
}

// explainErased shows what was found, what is left, and what only time removes.
func explainErased(v *eraseAnswer, wait time.Duration) terminal.Answer {
	t := terminal.Table{Columns: []string{"where", "what", "found", "left"}}
	for _, r := range []struct {
		where, what string
		found, left int
	}{
		{kafka.UsersTopic, "devices", v.Found.Devices, v.Left.Devices},
		{kafka.UsersTopic, "preferences", v.Found.Preferences, v.Left.Preferences},
		{kafka.UsersTopic, "profile", v.Found.Profile, v.Left.Profile},
		{kafka.UsersTopic, "personal limits", v.Found.Limits, v.Left.Limits},
		{kafka.UsersTopic, "other parts", v.Found.Others, v.Left.Others},
		{"Redis", "user record", v.Found.Record, v.Left.Record},
		{"Redis", "token index entries", v.Found.Tokens, v.Left.Tokens},
		{"Redis", "limiter states", v.Found.Limiters, v.Left.Limiters},
		{"Redis", "collapse keys", v.Found.Collapse, v.Left.Collapse},
		{"Cassandra", "rows of limits of devices", v.Found.DeviceRows, v.Left.DeviceRows},
		{"Cassandra", "subscriptions", v.Found.Subscribed, v.Left.Subscribed},
		{"Cassandra", "inbox entries", v.Found.Inbox, v.Left.Inbox},
		{"Cassandra", "reports of apps", v.Found.Clicks, v.Left.Clicks},
		{"Cassandra", "audiences of apps", v.Found.Audiences, v.Left.Audiences},
		{"Cassandra", "journal entries", v.Found.Journal, v.Left.Journal},
	} {
		left := strconv.Itoa(r.left)
		if v.DryRun {
			left = ""
		}
		t.Add(r.where, r.what, strconv.Itoa(r.found), left)
	}
	after := "dry run: nothing was changed; --yes erases what was found"
	switch {
	case v.DryRun:
	case v.Applied && v.Left == (eraseCounts{}):
		after = "erased"
	case v.Applied && v.Left == (eraseCounts{Record: 1}):
		after = "erased but for what a newer version keeps in the user's record in Redis: repeat the command when registries have that version"
	case v.Applied:
		after = "erased; what is left came while the command ran, and holds"
	case wait == 0:
		after = "the tombstones are written, and were not waited for: Redis changes when the registry has applied them; repeat the command then"
	default:
		after = "not erased yet: the registry has not applied the tombstones"
	}
	after += "\n\nWhat this command cannot remove:"
	for _, r := range v.Remains {
		after += "\n  " + r.Where + ": " + r.What + "\n    until " + r.Until
	}
	return terminal.Answer{Value: v, Before: "user " + terminal.Word(v.UserID) + ", user hash " + v.UserHash, Table: t, After: after}
}
