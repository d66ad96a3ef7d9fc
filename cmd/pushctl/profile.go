package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/wiring"
)

func newProfileCommand(a *app) *cobra.Command {
	return newGroup("profile", "Users' profiles: time zone, country, locale, user number", newProfileGetCommand(a), newProfileSetCommand(a))
}

// profileAnswer is a user's profile in the JSON answer. Clock is the zone by which
// quiet hours go, and ClockFrom says whose that is.
type profileAnswer struct {
	UserID       string     `json:"user_id"`
	Locale       string     `json:"locale"`
	Zone         string     `json:"time_zone"`
	Country      string     `json:"country"`
	Number       *uint32    `json:"user_number"`
	LastActivity *time.Time `json:"last_activity"`
	Clock        string     `json:"clock"`
	ClockFrom    string     `json:"clock_from"`
}

func newProfileGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get USER",
		Short: "What is known of a user, as the workers see it",
		Long: `Show the profile of a user, as it stands in Redis, where the workers read it, and the time zone by which the
user's quiet hours go: the user's own, else that of the user's country (countries of the configuration), else
preferences.default_zone.`,
		Example: "  pushctl profile get u42\n  pushctl profile get u42 -o json | jq -r .clock",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := a.user(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showProfile(args[0], u)
		},
	}
}

func (a *app) showProfile(id string, u *users.Stored) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	o, err := wiring.Quiet(c)
	if err != nil {
		return usageError{err}
	}
	zone, from := quiet.New(o).ZoneOf(&u.User)
	return a.show(explainProfile(id, u.Profile, zone, from))
}

func explainProfile(id string, p push.Profile, clock *time.Location, from quiet.Clock) terminal.Answer {
	value := profileAnswer{UserID: id, Locale: p.Locale, Zone: p.Zone, Country: p.Country, Clock: clock.String(), ClockFrom: from.String()}
	number, activity := "", ""
	if p.HasNumber {
		value.Number = &p.Number
		number = strconv.FormatUint(uint64(p.Number), 10)
	}
	if !p.LastActivity.IsZero() {
		value.LastActivity = &p.LastActivity
		activity = p.LastActivity.Format(time.RFC3339)
	}
	t := terminal.Table{Columns: []string{"user", "time zone", "country", "locale", "number", "last activity", "quiet hours go by"}}
	t.Add(id, p.Zone, p.Country, p.Locale, number, activity, from.String()+", "+clock.String())
	return terminal.Answer{Value: value, Table: t}
}

// profileFlags are the command line of profile set.
type profileFlags struct {
	profile  push.Profile
	activity string
	clean    bool
}

func newProfileSetCommand(a *app) *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "set USER [--time-zone ZONE] [--country CODE] [--locale TAG] [--number N] [--last-activity TIME] | --clear",
		Short: "Set some of what is known of a user",
		Long: `Set fields of a user's profile; those that are not named stay as they are, and an empty one is removed
(--country ""). --clear removes the whole profile, and alone removes a number.

The time zone is the one by which quiet hours go; the country chooses those of the fleet. The number stands for the user in
segments. The command reads what Redis has, and waits until the registry has applied the change. Of two commands at the
same moment one may lose what the other sets.`,
		Example: "  pushctl profile set u42 --time-zone Europe/Amsterdam --country NL\n  pushctl profile set u42 --number 270000123\n  pushctl profile set u42 --clear",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named := map[string]bool{}
			for _, name := range []string{"time-zone", "country", "locale", "number", "last-activity"} {
				if cmd.Flags().Changed(name) {
					named[name] = true
				}
			}
			if f.clean == (len(named) > 0) {
				return usagef("profile set needs either fields or --clear")
			}
			return a.setProfile(cmd.Context(), args[0], f, named)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.profile.Zone, "time-zone", "", "IANA `name`, such as Europe/Berlin")
	flags.StringVar(&f.profile.Country, "country", "", "two letters (ISO 3166-1 alpha-2 `code`)")
	flags.StringVar(&f.profile.Locale, "locale", "", "language `tag`, such as en-GB")
	flags.Uint32Var(&f.profile.Number, "number", 0, "user `number`, from 0 to 4294967295")
	flags.StringVar(&f.activity, "last-activity", "", "`time` (RFC 3339)")
	flags.BoolVar(&f.clean, "clear", false, "remove the profile")
	return cmd
}

func (a *app) setProfile(ctx context.Context, id string, f profileFlags, named map[string]bool) error {
	if f.activity != "" {
		at, err := time.Parse(time.RFC3339, f.activity)
		if err != nil {
			return usagef("--last-activity: not RFC 3339, such as 2026-11-21T10:00:00Z")
		}
		f.profile.LastActivity = at
	}
	f.profile.HasNumber = named["number"]
	if err := record.CheckProfile(&f.profile, time.Now()); err != nil {
		return usageError{err}
	}
	want := &users.Stored{}
	err := a.changeUser(ctx, id, func(u *users.Stored) (func(*users.Client) error, func(*users.Stored) bool) {
		if !f.clean {
			want.Profile = changedProfile(u.Profile, f.profile, named)
		}
		return func(c *users.Client) error { return c.SetProfile(ctx, id, want.Profile) },
			func(u *users.Stored) bool { return u.Profile == want.Profile }
	})
	if err != nil {
		return err
	}
	return a.showProfile(id, want)
}

// changedProfile is p with the named fields of to.
func changedProfile(p, to push.Profile, named map[string]bool) push.Profile {
	if named["time-zone"] {
		p.Zone = to.Zone
	}
	if named["country"] {
		p.Country = to.Country
	}
	if named["locale"] {
		p.Locale = to.Locale
	}
	if named["number"] {
		p.Number, p.HasNumber = to.Number, true
	}
	if named["last-activity"] {
		p.LastActivity = to.LastActivity
	}
	return p
}
