package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring/lookup"
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

// question is the one that the flags ask about a user.
func (f *notificationFlags) question(user string) lookup.Question {
	return lookup.Question{User: user, Lane: f.lane, App: f.app, Type: f.messageType, Sender: f.sender, Priority: f.priority}
}

// ask reads the user that a question is about.
func (a *app) ask(ctx context.Context, q lookup.Question) (*lookup.Asked, error) {
	l, err := a.lookups()
	if err != nil {
		return nil, err
	}
	asked, err := l.Ask(ctx, q)
	if wrong, is := errors.AsType[*lookup.QuestionError](err); is {
		return nil, usagef("--%w", wrong)
	}
	return asked, err
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
			q, err := a.ask(cmd.Context(), f.question(args[0]))
			if err != nil {
				return err
			}
			uses, err := q.Uses(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(explainUses(uses, devicesOf(&q.User)))
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// devicesOf are the names of a user's devices by their hashes in limits.
func devicesOf(u *push.User) map[uint32]string {
	names := make(map[uint32]string, len(u.Devices))
	for i := range u.Devices {
		names[limits.DeviceHash(u.Devices[i].Hash)] = u.Devices[i].Hash
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
