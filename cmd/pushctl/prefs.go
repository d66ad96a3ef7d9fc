package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

func newPrefsCommand(a *app) *cobra.Command {
	return newGroup("prefs", "Users' preferences: what they forbid, agree to, and when they sleep",
		newPrefsGetCommand(a), newPrefsSetCommand(a), newPrefsLimitsCommand(a))
}

// prefsAnswer is a user's preferences in the JSON answer.
type prefsAnswer struct {
	UserID string `json:"user_id"`
	forms.Preferences
}

func newPrefsGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get USER",
		Short: "What a user forbids and agrees to, as the workers see it",
		Long: `Show a user's preferences, as they stand in Redis, where the workers read them. A change appears
when the registry has applied it. An unknown user forbids nothing.`,
		Example: "  pushctl prefs get u42 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := a.user(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ans := explainPrefs(args[0], u.Preferences)
			if u.Quarantine&(push.PreferencesBroken|push.PreferencesUnknown) != 0 {
				ans.After = "the user's preferences cannot be read, so nothing is sent: pushctl users quarantine ls"
			}
			return a.show(ans)
		},
	}
}

func explainPrefs(user string, p push.Preferences) terminal.Answer {
	value := prefsAnswer{user, forms.OfPreferences(&p)}
	t := terminal.Table{Columns: []string{"user", "blocked", "opted out of all", "channels", "types", "senders", "opted in to", "quiet hours"}}
	var quiet []string
	for _, q := range p.Quiet {
		quiet = append(quiet, forms.QuietText(q))
	}
	yes := map[bool]string{true: "yes", false: "no"}
	t.Add(user, yes[p.Blocked], yes[p.OptOutAll], strings.Join(p.Channels, ", "), strings.Join(p.Types, ", "), strings.Join(p.Senders, ", "),
		strings.Join(p.OptIns, ", "), strings.Join(quiet, "; "))
	return terminal.Answer{Value: value, Table: t}
}

// parseQuiet reads quiet hours as a flag gives them, and forms.QuietText writes
// them: 22:00-07:00 days=fri,sat types=news.
func parseQuiet(text string) (q push.QuietHours, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return q, usagef("--quiet-hours: want such as 22:00-07:00")
	}
	from, to, _ := strings.Cut(words[0], "-")
	begin, ok := push.ParseClock(from)
	end, also := push.ParseClock(to)
	if !ok || !also {
		return q, usagef("--quiet-hours: want two times from 00:00 to 23:59, such as 22:00-07:00")
	}
	q.From, q.To = begin, end
	for _, word := range words[1:] {
		name, list, _ := strings.Cut(word, "=")
		names := strings.Split(list, ",")
		switch name {
		case "days":
			if q.Days, ok = push.ParseWeekdays(names); !ok {
				return q, usagef("--quiet-hours: days are some of mon,tue,wed,thu,fri,sat,sun")
			}
		case "types":
			q.Types = names
		default:
			return q, usagef("--quiet-hours: behind the times want days=… or types=…")
		}
	}
	return q, nil
}

func newPrefsSetCommand(a *app) *cobra.Command {
	var (
		p     push.Preferences
		hours []string
		clean bool
	)
	cmd := &cobra.Command{
		Use:   "set USER [--blocked] [--opt-out-…] [--opt-in TYPE] [--quiet-hours HOURS] | --clear",
		Short: "Replace a user's preferences",
		Long: `Replace all preferences of a user with those of the flags; what is not named is removed, and --clear
removes everything. The channels are: ` + channelWords() + `.

Opt-outs hold back everything but notifications with priority critical. --blocked holds back these, too, except in
lanes with ignore_blocked. --opt-in is for types that need consent (preferences.opt_in_types of the configuration).

Quiet hours are two times on the clock of the user (pushctl profile set --time-zone), from the first minute that is
quiet to the first that is not. They end on the next day unless the second time is later, and are 24 hours if both are
equal. Behind the times may stand the days on which they begin, and the message types they are about:

  --quiet-hours 22:00-07:00                            every night, everything
  --quiet-hours '23:00-09:00 days=fri,sat types=news'  news in the nights after Fridays and Saturdays

What comes then is held until they end, or dropped if its type is one of preferences.drop_types.`,
		Example: "  pushctl prefs set u42 --opt-out-type promo --opt-out-type news --quiet-hours 22:00-07:00\n  pushctl prefs set u42 --opt-out-channel push\n  pushctl prefs set u42 --clear",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, text := range hours {
				q, err := parseQuiet(text)
				if err != nil {
					return err
				}
				p.Quiet = append(p.Quiet, q)
			}
			some := p.Blocked || p.OptOutAll || len(p.Channels)+len(p.Types)+len(p.Senders)+len(p.OptIns)+len(p.Quiet) > 0
			if some == clean {
				return usagef("prefs set needs either preferences or --clear")
			}
			return a.setPrefs(cmd.Context(), args[0], p)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&p.Blocked, "blocked", false, "nothing at all, not even what is critical")
	flags.BoolVar(&p.OptOutAll, "opt-out-all", false, "opt out of everything")
	flags.StringArrayVar(&p.Channels, "opt-out-channel", nil, "opt out of a channel, by `name`; may be repeated")
	flags.StringArrayVar(&p.Types, "opt-out-type", nil, "opt out of a message type, by `name`; may be repeated")
	flags.StringArrayVar(&p.Senders, "opt-out-sender", nil, "opt out of what a sender sends, by `sender_id`; may be repeated")
	flags.StringArrayVar(&p.OptIns, "opt-in", nil, "agree to a message `type` that needs consent; may be repeated")
	flags.StringArrayVar(&hours, "quiet-hours", nil, "`hours` in which nothing is sent; may be repeated")
	flags.BoolVar(&clean, "clear", false, "remove all preferences")
	return cmd
}

// channelWords list the channels, each with its platforms.
func channelWords() string {
	var channels []string
	platforms := map[string][]string{}
	for p := range push.Platforms {
		c := p.Channel()
		if platforms[c] = append(platforms[c], p.String()); !slices.Contains(channels, c) {
			channels = append(channels, c)
		}
	}
	for i, c := range channels {
		channels[i] = c + " (" + strings.Join(platforms[c], ", ") + ")"
	}
	return strings.Join(channels, ", ")
}

func (a *app) setPrefs(ctx context.Context, user string, p push.Preferences) error {
	log, err := a.usersLog(ctx)
	if err != nil {
		return err
	}
	if err := users.NewClient(log).SetPreferences(ctx, user, p); err != nil {
		return invalidIsUsage(err)
	}
	return a.show(explainPrefs(user, p))
}

// invalidIsUsage turns the error for invalid input into a usageError.
func invalidIsUsage(err error) error {
	if errors.Is(err, record.ErrInvalid) {
		return usageError{err}
	}
	return err
}
