package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
)

// appliedTime is how long a command waits for the registry to apply its change.
const appliedTime = 10 * time.Second

// changeUser changes a part of a user of which only some is given: it writes what
// change makes of the user as Redis has it, and waits until Redis has that, so that
// the next command builds on it.
func (a *app) changeUser(ctx context.Context, id string, change func(*users.Stored) (write func(*users.Client) error, applied func(*users.Stored) bool)) error {
	u, err := a.user(ctx, id)
	if err != nil {
		return err
	}
	write, applied := change(u)
	log, err := a.usersLog(ctx)
	if err != nil {
		return err
	}
	if err := write(users.NewClient(log)); err != nil {
		return invalidIsUsage(err)
	}
	within, cancel := context.WithTimeout(ctx, appliedTime)
	defer cancel()
	for pause := firstLook; !applied(u); pause = min(2*pause, longLook) {
		select {
		case <-time.After(pause):
		case <-within.Done():
		}
		now, err := a.user(within, id)
		switch {
		case err == nil:
			u = now
		case ctx.Err() != nil:
			return partlyf(ctx.Err(), "the change is in %s", kafka.UsersTopic)
		case within.Err() != nil:
			return fmt.Errorf("the change of user %s is in %s, but was not applied within %v: is `pushworker registry` running?", terminal.Word(id), kafka.UsersTopic, appliedTime)
		default:
			return err
		}
	}
	return nil
}
