package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/check"
	"github.com/pushfleet/pushfleet/push"
)

func newProvidersCommand(a *app) *cobra.Command {
	cmd := newProvidersListCommand(a, "providers")
	cmd.Short = "The ways to Apple and Google"
	cmd.AddCommand(newProvidersListCommand(a, "ls"), newProvidersCheckCommand(a), newProvidersQuarantinedCommand(a), newProvidersReleaseCommand(a))
	return cmd
}

func newProvidersCheckCommand(a *app) *cobra.Command {
	var apps []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try each app's credentials, and say which step of the way fails",
		Long: `Try the way to Apple and to Google for each app of the configuration, from this machine, and say at
which step it ends: name resolution, connection, TLS, HTTP/2, credentials, topic or project.

Nobody is pushed: Apple is asked to push to a device token that no device has, which it refuses only
after it has taken the credentials and the topic; Google is asked to validate a message and not to send
it. Run it before the first worker starts, after changing a key, and from a machine like a worker's.

Exit status 1 if the way of one app ends before its provider would take a push.`,
		Example: "  pushctl providers check\n  pushctl providers check --app shop -o json | jq '.[] | select(.ok | not)'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usagef("--timeout: %v is not above 0", timeout)
			}
			return a.checkProviders(cmd.Context(), apps, timeout)
		},
	}
	cmd.Flags().StringSliceVar(&apps, "app", nil, "only this `app`; may be repeated")
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "for each app and provider")
	return cmd
}

// wayRow is the way to one provider for one app in the JSON answer.
type wayRow struct {
	App   string      `json:"app"`
	Route string      `json:"route"`
	OK    bool        `json:"ok"`
	Steps check.Steps `json:"steps"`
}

// way is one to be tried.
type way struct {
	route push.Route
	try   func(context.Context) check.Steps
}

// checksAtOnce bounds the connections that are made at once.
const checksAtOnce = 8

func (a *app) checkProviders(ctx context.Context, apps []string, timeout time.Duration) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	ways, err := waysOf(c, apps)
	if err != nil {
		return err
	}
	rows := make([]wayRow, len(ways))
	var at errgroup.Group
	at.SetLimit(checksAtOnce)
	for i, w := range ways {
		at.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			steps := w.try(ctx)
			rows[i] = wayRow{App: w.route.App, Route: w.route.String(), OK: steps.OK(), Steps: steps}
			return nil
		})
	}
	_ = at.Wait() // a step that fails is a row
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := a.show(explainWays(rows)); err != nil {
		return err
	}
	if slices.ContainsFunc(rows, func(r wayRow) bool { return !r.OK }) {
		return errDifference
	}
	return nil
}

// waysOf are those of the apps named, or of all.
func waysOf(c *configs.Config, names []string) (ways []way, err error) {
	known := make([]string, len(c.Apps))
	for i := range c.Apps {
		known[i] = c.Apps[i].Name
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usagef("--app: no app %q; the configuration has %s", name, strings.Join(known, ", "))
		}
	}
	for i := range c.Apps {
		app := &c.Apps[i]
		if len(names) > 0 && !slices.Contains(names, app.Name) {
			continue
		}
		if app.APNS != nil {
			ways = append(ways, waysToAPNS(app)...)
		}
		if app.FCM != nil {
			ways = append(ways, way{push.Route{Platform: push.FCM, App: app.Name}, tryFCM(app.FCM)})
		}
	}
	if len(ways) == 0 {
		return nil, usagef("the configuration has no app with apns or fcm to check")
	}
	return ways, nil
}

func waysToAPNS(app *configs.App) (ways []way) {
	for _, env := range app.APNS.Environments {
		ways = append(ways, way{push.Route{Platform: push.APNS, App: app.Name, Environment: env}, tryAPNS(app.APNS, env)})
	}
	return ways
}

// tryAPNS takes the token that workers have at this time, which is no update of Apple's.
func tryAPNS(a *configs.APNS, env string) func(context.Context) check.Steps {
	return func(ctx context.Context) check.Steps {
		roots, err := a.TLSConfig()
		if err != nil {
			return unusable("apns.ca_file", err)
		}
		key, err := a.Key()
		if err != nil {
			return unusable("apns.key_file", err)
		}
		signer, err := apns.NewTokenSource(a.TeamID, a.KeyID, []byte(key.Reveal()))
		if err != nil {
			return unusable("apns.key_file", err)
		}
		token, err := signer.Authorization(time.Now())
		if err != nil {
			return unusable("apns.key_file", err)
		}
		return check.APNS{URL: a.URL(env), Topic: a.Topic, TLS: roots, Authorization: token}.Run(ctx)
	}
}

func tryFCM(f *configs.FCM) func(context.Context) check.Steps {
	return func(ctx context.Context) check.Steps {
		roots, err := f.TLSConfig()
		if err != nil {
			return unusable("fcm.ca_file", err)
		}
		account, err := f.ServiceAccount()
		if err != nil {
			return unusable("fcm.service_account_file", err)
		}
		return check.FCM{URL: f.URL, Project: f.Project, ServiceAccount: []byte(account.Reveal()), TLS: roots}.Run(ctx)
	}
}

// unusable is the one step of a way that does not begin.
func unusable(key string, err error) check.Steps {
	return check.Steps{{Name: "configuration", Detail: fmt.Sprintf("%s: %v", key, err), Advice: "correct " + key}}
}

func explainWays(rows []wayRow) terminal.Answer {
	t := terminal.Table{Columns: []string{"route", "step", "result", "what was seen"}}
	bad := 0
	var advice []string
	for _, r := range rows {
		for _, s := range r.Steps {
			result := "ok"
			if !s.OK {
				result = "FAILED"
				bad++
				advice = append(advice, r.Route+": "+s.Advice)
			}
			t.Add(r.Route, s.Name, result, s.Detail)
		}
	}
	after := fmt.Sprintf("%d of %d routes would be taken", len(rows)-bad, len(rows))
	if bad > 0 {
		after += "\n" + strings.Join(advice, "\n")
	}
	return terminal.Answer{Value: rows, Table: t, After: after}
}
