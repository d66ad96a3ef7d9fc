package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

func newPrefsLimitsCommand(a *app) *cobra.Command {
	return newGroup("limits", "Users' personal limits: how much of something one user gets",
		newPrefsLimitsGetCommand(a), newPrefsLimitsSetCommand(a), newPrefsLimitsUnsetCommand(a))
}

func newPrefsLimitsGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get USER",
		Short: "A user's personal limits, as the workers see them",
		Long: `Show the personal limits of a user, as they stand in Redis, where the workers read them: by the name of a
rule (limits.rules of the configuration) or a message type, how many notifications the user gets in the rule's window.
Where a user has none, the rule's own limit applies.`,
		Example: "  pushctl prefs limits get u42 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := a.user(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(explainLimits(args[0], u.Limits))
		},
	}
}

func newPrefsLimitsSetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "set USER NAME=N...",
		Short: "Set some personal limits of a user",
		Long: `Set personal limits of a user: N notifications, from 1 to 4096, in the window of the rule NAME, or of each rule
that counts the message type NAME apart. Limits that are not named stay as they are. To get nothing at all is an
opt-out: pushctl prefs set --opt-out-type.

The command reads what Redis has, and waits until the registry has applied the change. Of two commands at the same moment
one may lose what the other sets.`,
		Example: "  pushctl prefs limits set u42 promo=2 all-an-hour=30",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := parseLimits(args[1:])
			if err != nil {
				return err
			}
			return a.changeLimits(cmd.Context(), args[0], func(limits []push.PersonalLimit) []push.PersonalLimit {
				for _, l := range set {
					limits = append(without(limits, l.Name), l)
				}
				return limits
			})
		},
	}
}

func newPrefsLimitsUnsetCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "unset USER NAME...|--all",
		Short: "Remove personal limits of a user",
		Long: `Remove personal limits of a user: then the limits of the rules apply. Removing one that does not exist is not an
error. Like set, the command waits until the registry has applied the change.`,
		Example: "  pushctl prefs limits unset u42 promo\n  pushctl prefs limits unset u42 --all",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 1) {
				return usagef("prefs limits unset needs either names of limits or --all")
			}
			return a.changeLimits(cmd.Context(), args[0], func(limits []push.PersonalLimit) []push.PersonalLimit {
				if all {
					return nil
				}
				for _, name := range args[1:] {
					limits = without(limits, name)
				}
				return limits
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all personal limits of the user")
	return cmd
}

func without(limits []push.PersonalLimit, name string) []push.PersonalLimit {
	return slices.DeleteFunc(limits, func(l push.PersonalLimit) bool { return l.Name == name })
}

// parseLimits reads NAME=N. A name may contain the sign.
func parseLimits(args []string) (limits []push.PersonalLimit, err error) {
	for _, arg := range args {
		i := max(strings.LastIndexByte(arg, '='), 0)
		n, err := strconv.Atoi(strings.TrimPrefix(arg[i:], "="))
		if err != nil || i == 0 {
			return nil, usagef("want limits as NAME=N, such as promo=2")
		}
		limits = append(limits, push.PersonalLimit{Name: arg[:i], Max: n})
	}
	if err := record.CheckLimits(limits); err != nil {
		return nil, usageError{err}
	}
	return limits, nil
}

func (a *app) changeLimits(ctx context.Context, id string, change func([]push.PersonalLimit) []push.PersonalLimit) error {
	var want []push.PersonalLimit
	err := a.changeUser(ctx, id, func(u *users.Stored) (func(*users.Client) error, func(*users.Stored) bool) {
		want = change(slices.Clone(u.Limits))
		return func(c *users.Client) error { return c.SetLimits(ctx, id, want) },
			func(u *users.Stored) bool {
				slices.SortFunc(want, func(a, b push.PersonalLimit) int { return strings.Compare(a.Name, b.Name) })
				return slices.Equal(u.Limits, want)
			}
	})
	if err != nil {
		return err
	}
	return a.show(explainLimits(id, want))
}

// limitsAnswer are personal limits in the JSON answer.
type limitsAnswer struct {
	UserID string         `json:"user_id"`
	Limits map[string]int `json:"limits"`
}

func explainLimits(id string, limits []push.PersonalLimit) terminal.Answer {
	value := limitsAnswer{UserID: id, Limits: map[string]int{}}
	t := terminal.Table{Columns: []string{"user", "rule or type", "most"}}
	for _, l := range limits {
		value.Limits[l.Name] = l.Max
		t.Add(id, l.Name, strconv.Itoa(l.Max))
	}
	ans := terminal.Answer{Value: value, Table: t}
	if len(limits) == 0 {
		ans.Before = fmt.Sprintf("user %s has no personal limits: those of the rules apply", terminal.Word(id))
	}
	return ans
}
