package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

func newPrefsCommand(a *app) *cobra.Command {
	return newGroup("prefs", "Users' preferences: what they have opted out of", newPrefsGetCommand(a), newPrefsSetCommand(a))
}

// prefsAnswer is a user's preferences as scripts see them.
type prefsAnswer struct {
	UserID    string   `json:"user_id"`
	OptOutAll bool     `json:"opt_out_all"`
	Channels  []string `json:"opt_out_channels"`
	Types     []string `json:"opt_out_types"`
}

func newPrefsGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get USER",
		Short: "What a user has opted out of, as the workers see it",
		Long: `What a user has opted out of, as it stands in Redis, where the workers read it: what has just been
set appears when the registry has applied it. A user who is not known has opted out of nothing.`,
		Example: "  pushctl prefs get u42 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := a.user(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ans := explainPrefs(args[0], u.Preferences)
			if u.Quarantine&(push.PreferencesBroken|push.PreferencesUnknown) != 0 {
				ans.After = "what the user set cannot be read, so all but critical is kept back: pushctl users quarantine ls"
			}
			return a.show(ans)
		},
	}
}

func explainPrefs(user string, p push.Preferences) terminal.Answer {
	value := prefsAnswer{UserID: user, OptOutAll: p.OptOutAll, Channels: append([]string{}, p.Channels...), Types: append([]string{}, p.Types...)}
	t := terminal.Table{Columns: []string{"user", "opted out of all", "channels", "types"}}
	all := "no"
	if p.OptOutAll {
		all = "yes"
	}
	t.Add(user, all, strings.Join(p.Channels, ", "), strings.Join(p.Types, ", "))
	return terminal.Answer{Value: value, Table: t}
}

func newPrefsSetCommand(a *app) *cobra.Command {
	var (
		p     push.Preferences
		clean bool
	)
	cmd := &cobra.Command{
		Use:   "set USER [--opt-out-all] [--opt-out-channel NAME] [--opt-out-type NAME] | --clear",
		Short: "Replace what a user has opted out of",
		Long: `Replace all preferences of a user by those of the flags: what is not named is not opted out of any
more. --clear removes them all. The channels are: ` + channelWords() + `.`,
		Example: "  pushctl prefs set u42 --opt-out-type promo --opt-out-type news\n  pushctl prefs set u42 --opt-out-channel push\n  pushctl prefs set u42 --clear",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			some := p.OptOutAll || len(p.Channels)+len(p.Types) > 0
			if some == clean {
				return usagef("prefs set wants either opt-outs or --clear")
			}
			return a.setPrefs(cmd.Context(), args[0], p)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&p.OptOutAll, "opt-out-all", false, "of everything")
	flags.StringArrayVar(&p.Channels, "opt-out-channel", nil, "of a channel, by `name`; may be repeated")
	flags.StringArrayVar(&p.Types, "opt-out-type", nil, "of a message type, by `name`; may be repeated")
	flags.BoolVar(&clean, "clear", false, "of nothing any more")
	return cmd
}

// channelWords say which channel carries what.
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

// invalidIsUsage makes refused input what it is on a command line: wrong
// usage.
func invalidIsUsage(err error) error {
	if errors.Is(err, users.ErrInvalid) {
		return usageError{err}
	}
	return err
}
