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
	"github.com/pushfleet/pushfleet/users/record"
)

func newPrefsCommand(a *app) *cobra.Command {
	return newGroup("prefs", "Users' preferences: their opt-outs", newPrefsGetCommand(a), newPrefsSetCommand(a))
}

// prefsAnswer is a user's preferences in the JSON answer.
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
		Long: `Show what a user has opted out of, as it stands in Redis, where the workers read it. A change appears
when the registry has applied it. An unknown user has opted out of nothing.`,
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
		Long: `Replace all opt-outs of a user with those of the flags; opt-outs that are not named are removed. --clear
removes all of them. The channels are: ` + channelWords() + `.`,
		Example: "  pushctl prefs set u42 --opt-out-type promo --opt-out-type news\n  pushctl prefs set u42 --opt-out-channel push\n  pushctl prefs set u42 --clear",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			some := p.OptOutAll || len(p.Channels)+len(p.Types) > 0
			if some == clean {
				return usagef("prefs set needs either opt-outs or --clear")
			}
			return a.setPrefs(cmd.Context(), args[0], p)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&p.OptOutAll, "opt-out-all", false, "opt out of everything")
	flags.StringArrayVar(&p.Channels, "opt-out-channel", nil, "opt out of a channel, by `name`; may be repeated")
	flags.StringArrayVar(&p.Types, "opt-out-type", nil, "opt out of a message type, by `name`; may be repeated")
	flags.BoolVar(&clean, "clear", false, "remove all opt-outs")
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
