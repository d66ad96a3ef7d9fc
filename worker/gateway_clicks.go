package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/wiring"
)

// ClickStore is where a gateway keeps what apps report.
type ClickStore interface {
	gateway.Reports
	Check(ctx context.Context) error
}

// clicksState is the name of clicks in /readyz.
const clicksState = "clicks"

// clicksOf is what a gateway needs for reports of apps; nil = it takes none. It connects to
// nothing yet.
func (g *openGateway) clicksOf() *gateway.Clicks {
	c := &g.Config.Gateway.Clicks
	if !c.Enabled {
		return nil
	}
	if g.reports = g.Clicks; g.reports == nil {
		g.clicks = &lateTables{err: errNotYet}
		g.reports = clicks.New(wiring.ClicksOptions(g.Config, g.clicks))
		g.aside.set(clicksState, errNotYet)
	}
	return &gateway.Clicks{Store: g.reports, Valid: c.Valid, Kept: c.Kept, Rate: c.Rate}
}

// watchClicks connects to the table, and looks at it until ctx ends.
func (g *openGateway) watchClicks(ctx context.Context, watches *sync.WaitGroup) {
	if g.clicks == nil {
		return
	}
	watches.Go(func() {
		g.watchLate(ctx, clicksState, g.clicks, func(ctx context.Context) error {
			if err := g.reports.Check(ctx); err != nil {
				return fmt.Errorf("%w (pushctl schema apply)", err)
			}
			return nil
		})
	})
}
