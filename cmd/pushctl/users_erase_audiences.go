package main

import (
	"context"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/configs"
)

// erasedMembers is what users erase needs of a store of who uses an app.
type erasedMembers interface {
	Count(ctx context.Context, user string, apps []string) (rows int, err error)
	Forget(ctx context.Context, user string, apps []string) error
}

// erasedAudiences are a user in the audiences of all configured apps.
type erasedAudiences struct {
	store erasedMembers
	user  string
	apps  []string
}

// notesAudiences reports whether it may be noted who uses an app: a registry does, or did for
// gateways that send to them.
func notesAudiences(c *configs.Config) bool { return c.Registry.Audiences || c.Gateway.Audiences }

// audiencesOf opens where a user may be; nil = nobody is, or nobody of that id can be. A user
// is found by app: without apps nothing would be found.
func (a *app) audiencesOf(ctx context.Context, c *configs.Config, user string) (*erasedAudiences, error) {
	if !notesAudiences(c) || !audiences.Usable(user) {
		return nil, nil
	}
	if len(c.Apps) == 0 {
		return nil, usagef("apps: must not be empty where it is noted who uses an app: the user is found by the apps")
	}
	e := &erasedAudiences{store: a.members, user: user}
	if e.store == nil {
		tables, err := a.cassandraTables(ctx)
		if err != nil {
			return nil, err
		}
		e.store = audiences.New(audiences.Options{Tables: tables})
	}
	for _, app := range c.Apps {
		e.apps = append(e.apps, app.Name)
	}
	return e, nil
}

// count is how many rows there are.
func (e *erasedAudiences) count(ctx context.Context) (int, error) {
	return e.store.Count(ctx, e.user, e.apps)
}

// forget removes them, and keeps what a registry is still to read from bringing them back.
func (e *erasedAudiences) forget(ctx context.Context) error {
	return e.store.Forget(ctx, e.user, e.apps)
}
