package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
)

func newProvidersQuarantinedCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "quarantined",
		Short: "Campaigns and senders that are stopped because nearly all their tokens are bad",
		Long: `List the campaigns and senders that workers have stopped on a route, and until when: nearly all bad tokens
of the route were theirs, while others' pushes were accepted. What they send there waits (HELD,
campaign_quarantined or sender_quarantined) until then, until it expires, or until it is released.`,
		Example: "  pushctl providers quarantined\n  pushctl providers quarantined -o json | jq -r '.[].origin'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := a.quarantines(cmd.Context())
			if err != nil {
				return err
			}
			all, err := store.Quarantined(cmd.Context())
			if err != nil {
				return err
			}
			return a.show(explainQuarantined(all, time.Now()))
		},
	}
}

func newProvidersReleaseCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "release ROUTE campaign@SENDER|campaign|sender NAME",
		Short: "End the quarantine of a campaign or a sender",
		Long: `End the quarantine of a campaign or a sender on a route. Workers hear of it within a second, and what waits is
sent when it is due again, within 5 minutes. Remove the bad tokens first, or it is stopped again. A campaign is
named as pushctl providers quarantined shows it: with its sender.

Exit status 1 if there is no such quarantine.`,
		Example: "  pushctl providers release apns/shop/production campaign@marketing autumn",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			route, ok := push.ParseRoute(args[0])
			if !ok {
				return usagef("ROUTE: %q is none; pushctl providers quarantined names them", args[0])
			}
			origin, ok := push.ParseOrigin(args[1] + "/" + args[2])
			if !ok {
				return usagef("%q: want campaign@SENDER, campaign (of no sender) or sender, and a name", args[1])
			}
			store, err := a.quarantines(cmd.Context())
			if err != nil {
				return err
			}
			there, err := store.Release(cmd.Context(), route, origin)
			if err != nil {
				return err
			}
			v := releaseAnswer{Route: route.String(), Origin: origin.String(), Released: there}
			t := terminal.Table{Columns: []string{"route", "origin", "released"}}
			t.Add(v.Route, v.Origin, fmt.Sprint(there))
			if err := a.show(terminal.Answer{Value: v, Table: t}); err != nil || there {
				return err
			}
			return errDifference
		},
	}
}

// releaseAnswer is the JSON answer of `pushctl providers release`.
type releaseAnswer struct {
	Route    string `json:"route"`
	Origin   string `json:"origin"`
	Released bool   `json:"released"` // there was a quarantine
}

// quarantinedRow is one in the JSON answer of `pushctl providers quarantined`.
type quarantinedRow struct {
	Route  string    `json:"route"`
	Origin string    `json:"origin"`
	Until  time.Time `json:"until"`
}

// quarantines is where the fleet keeps them.
func (a *app) quarantines(ctx context.Context) (*pauses.Store, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	return pauses.New(client, wiring.Pauses(c, slog.New(slog.DiscardHandler)))
}

func explainQuarantined(all []gates.Quarantined, now time.Time) terminal.Answer {
	rows := make([]quarantinedRow, 0, len(all))
	for _, q := range all {
		rows = append(rows, quarantinedRow{q.Route.String(), q.Origin.String(), now.Add(q.Left).UTC().Truncate(time.Second)})
	}
	slices.SortFunc(rows, func(a, b quarantinedRow) int {
		return cmp.Or(cmp.Compare(a.Route, b.Route), cmp.Compare(a.Origin, b.Origin))
	})
	t := terminal.Table{Columns: []string{"route", "origin", "until"}}
	for _, r := range rows {
		t.Add(r.Route, r.Origin, r.Until.Format(time.RFC3339))
	}
	return terminal.Answer{Value: rows, Table: t}
}
