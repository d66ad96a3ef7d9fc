package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

func newLimitsCommand(a *app) *cobra.Command {
	return newGroup("limits", "How limits stand for users, and what they would say now",
		newLimitsGetCommand(a), newLimitsCheckCommand(a), newLimitsResetCommand(a))
}

// notificationFlags describe a notification that limits are asked about.
type notificationFlags struct {
	lane, app, messageType, sender, priority string
}

func (f *notificationFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.lane, "lane", "", "`lane` that it comes in; default: the first one that is configured")
	flags.StringVar(&f.app, "app", "", "`app` that it is for; default: the first one that is configured")
	flags.StringVar(&f.messageType, "type", "default", "its message `type`")
	flags.StringVar(&f.sender, "sender", "", "its `sender_id`; default: none")
	flags.StringVar(&f.priority, "priority", "", "critical, high, medium, low or bulk; default: the lane's. critical counts as high unless --sender is one of the lane's critical_senders")
}

// asked is what limits are asked about: a notification to a user, as both are now.
type asked struct {
	config  *configs.Config
	lane    *configs.Lane
	message push.Message
	user    push.User
	zone    *time.Location
	request limits.Request
	now     time.Time
}

// ask reads the user and makes the request.
func (a *app) ask(ctx context.Context, id string, f *notificationFlags) (*asked, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	q := &asked{config: c, now: time.Now()}
	if q.lane, err = laneNamed(c, f.lane); err != nil {
		return nil, err
	}
	if f.app == "" && len(c.Apps) > 0 {
		f.app = c.Apps[0].Name
	}
	word := f.priority
	if word == "" {
		word = q.lane.DefaultPriority
	}
	priority := wiring.Priority(word)
	if priority.String() != word {
		return nil, usagef("--priority: %q is none: critical, high, medium, low or bulk", word)
	}
	if may := q.lane.MayBeCritical(); priority == push.Critical && may != nil && !may[f.sender] {
		priority = push.High // as a worker takes it
	}
	if len(c.Apps) > 0 && !slices.ContainsFunc(c.Apps, func(a configs.App) bool { return a.Name == f.app }) {
		return nil, usagef("--app: there is no app %q", f.app)
	}
	q.message = push.Message{ID: "pushctl-limits-check", UserID: id, App: f.app, Type: f.messageType, SenderID: f.sender, Priority: priority}
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	if err := users.NewReader(client, true).Fetch(ctx, []string{id}, []*push.User{&q.user}); err != nil {
		if _, unbuilt := users.IsUnbuilt(err); unbuilt {
			return nil, fmt.Errorf("%w: is `pushworker registry` running?", err)
		}
		return nil, err
	}
	o, err := wiring.Quiet(c)
	if err != nil {
		return nil, usageError{err}
	}
	q.zone = quiet.New(o).Zone(&q.user)
	q.request = limits.Request{Owner: id, ID: q.message.ID, Type: f.messageType, App: f.app, Lane: q.lane.Name, Channel: push.ChannelPush,
		Priority: uint8(priority), Personal: q.user.Limits, Zone: q.zone, State: q.user.Limiter, At: q.now, Since: q.now}
	for i := range q.user.Devices {
		if d := &q.user.Devices[i]; d.App == f.app {
			q.request.Devices = append(q.request.Devices, limits.Device{Hash: limits.DeviceHash(d.Hash)})
		}
	}
	q.request.Segments, err = segmentsOf(ctx, c, id, &q.user)
	return q, err
}

func laneNamed(c *configs.Config, name string) (*configs.Lane, error) {
	if name == "" {
		return &c.Lanes[0], nil
	}
	i := slices.IndexFunc(c.Lanes, func(l configs.Lane) bool { return l.Name == name })
	if i < 0 {
		return nil, usagef("--lane: there is no lane %q", name)
	}
	return &c.Lanes[i], nil
}

// segmentsOf loads the segments of the configuration, if rules need them.
func segmentsOf(ctx context.Context, c *configs.Config, id string, u *push.User) ([]string, error) {
	named := slices.ContainsFunc(c.Limits.Rules, func(r configs.Rule) bool { return len(r.Segments)+len(r.SegmentMax) > 0 })
	source, done, err := wiring.Segments(&c.Segments)
	if err != nil {
		return nil, usageError{err}
	}
	defer done()
	if source == nil || !named {
		return nil, nil
	}
	w := segments.NewWatcher(source, segments.WatcherOptions{MaxBytes: int64(c.Segments.MaxBytes)})
	if err := w.Poll(ctx); err != nil {
		return nil, err
	}
	return w.Set().AppendNames(nil, id, u.Profile.Number, u.Profile.HasNumber), nil
}

// limiter is that of the configuration; nil without rules.
func (a *app) limiter(ctx context.Context, q *asked) (*limits.Limiter, error) {
	rules := wiring.Rules(q.config)
	if len(rules) == 0 {
		return nil, nil
	}
	log, err := a.deviceLog(ctx, q.config)
	if err != nil {
		return nil, err
	}
	l, err := limits.New(nil, rules, wiring.LimitsOptions(q.config, log)...) // it is only asked what it needs no Redis for
	if err != nil {
		return nil, usageError{err}
	}
	return l, nil
}

// deviceLog opens where rules of devices count; nil = in Redis.
func (a *app) deviceLog(ctx context.Context, c *configs.Config) (*limits.DeviceLog, error) {
	if !c.Limits.Devices.InCassandra() {
		return nil, nil
	}
	opts, err := a.cassandraOptions()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.connectTime)
	defer cancel()
	log, done, err := wiring.DeviceLog(ctx, c, opts)
	if err != nil {
		return nil, err
	}
	a.onClose(done)
	return log, nil
}

// limitUse is how a rule stands, in the JSON answer.
type limitUse struct {
	Dimension string     `json:"dimension"`
	Rule      string     `json:"rule"`
	Device    string     `json:"device,omitempty"`
	Used      int        `json:"used"`
	Limit     int        `json:"limit"`
	Room      bool       `json:"room"`
	ResetAt   *time.Time `json:"reset_at"`
}

func newLimitsGetCommand(a *app) *cobra.Command {
	var f notificationFlags
	cmd := &cobra.Command{
		Use:   "get USER",
		Short: "What a user has used of each limit, and when it begins anew",
		Long: `Show how each rule of limits.rules stands for a user that a notification of this lane, app and type would be
held against: what is used in its window now, the user's limit, and when nothing of it counts any more.
It reads the user's state in Redis, and Cassandra if limits.devices says so, as workers do, and changes nothing.`,
		Example: "  pushctl limits get u42 --lane promotional --type news\n  pushctl limits get u42 -o json | jq '.[] | select(.room | not)'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := a.ask(cmd.Context(), args[0], &f)
			if err != nil {
				return err
			}
			limiter, err := a.limiter(cmd.Context(), q)
			if err != nil {
				return err
			}
			var uses []limits.Use
			if limiter != nil {
				if uses, err = limiter.Usage(cmd.Context(), &q.request); err != nil {
					return err
				}
			}
			return a.show(explainUses(uses, q.devices()))
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// devices are the names of the devices by their hashes in limits.
func (q *asked) devices() map[uint32]string {
	names := make(map[uint32]string, len(q.user.Devices))
	for i := range q.user.Devices {
		names[limits.DeviceHash(q.user.Devices[i].Hash)] = q.user.Devices[i].Hash
	}
	return names
}

func explainUses(uses []limits.Use, devices map[uint32]string) terminal.Answer {
	value := make([]limitUse, 0, len(uses))
	t := terminal.Table{Columns: []string{"dimension", "rule", "device", "used", "limit", "room", "begins anew"}}
	for _, u := range uses {
		one := limitUse{Dimension: string(u.Dimension), Rule: u.Rule, Device: devices[u.Device], Used: u.Current, Limit: u.Limit, Room: u.Room}
		anew, room := "", "no"
		if !u.ResetAt.IsZero() {
			one.ResetAt = &u.ResetAt
			anew = u.ResetAt.Format(time.RFC3339)
		}
		if u.Room {
			room = "yes"
		}
		value = append(value, one)
		t.Add(one.Dimension, one.Rule, one.Device, strconv.Itoa(u.Current), strconv.Itoa(u.Limit), room, anew)
	}
	ans := terminal.Answer{Value: value, Table: t}
	if len(uses) == 0 {
		ans.After = "no rule of limits.rules is about such a notification"
	}
	return ans
}

// reasonWords puts a reason and what came with it into one word, as status rows do.
func reasonWords(reason push.Reason, detail string) string {
	return strings.TrimSuffix(string(reason)+":"+detail, ":")
}
