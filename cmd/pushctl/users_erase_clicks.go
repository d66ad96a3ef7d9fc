package main

import (
	"context"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/wiring"
)

// erasedRows is what users erase needs of a store with rows of users.
type erasedRows interface {
	Count(ctx context.Context, user string) (rows int, err error)
	Forget(ctx context.Context, user string) error
}

// clicksStore is where reports of apps are; nil = there are none.
func (a *app) clicksStore(ctx context.Context, c *configs.Config) (erasedRows, error) {
	if !c.Gateway.Clicks.Enabled {
		return nil, nil
	}
	if a.clicks != nil {
		return a.clicks, nil
	}
	tables, err := a.cassandraTables(ctx)
	if err != nil {
		return nil, err
	}
	return clicks.New(wiring.ClicksOptions(c, tables)), nil
}
