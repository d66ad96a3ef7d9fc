package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/limits"
)

func newLimitsResetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reset USER",
		Short: "Forget what a user was sent: every limit begins anew",
		Long: `Remove a user's state of all limits from Redis, and, if limits.devices says so, what the user's devices got from
Cassandra. What was sent counts no more, and what waits for a place has lost it: it is judged anew when it comes
back. Limits of senders are not touched.

Rows in Cassandra are found by user and device: those of a device that is not the user's any more stay until
they end, 2 days after each was sent. They count again only if the device comes back.`,
		Example: "  pushctl limits reset u42",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.resetLimits(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(explainReset(v))
		},
	}
}

// resetAnswer is the JSON answer of limits reset.
type resetAnswer struct {
	UserID     string `json:"user_id"`
	Reset      bool   `json:"reset"`                 // there was something
	DeviceRows *int   `json:"device_rows,omitempty"` // removed from Cassandra; missing = rules of devices count in Redis
}

// resetLimits empties Cassandra first: it needs the user's devices, and can be away.
func (a *app) resetLimits(ctx context.Context, user string) (resetAnswer, error) {
	v := resetAnswer{UserID: user}
	client, err := a.reachRedis(ctx)
	if err != nil {
		return v, err
	}
	log, err := a.deviceLog(ctx)
	if err != nil {
		return v, err
	}
	if log != nil {
		u, err := a.user(ctx, user)
		if err != nil {
			return v, err
		}
		devices := []string{user} // of what names a device and no user, that is both
		for i := range u.Devices {
			devices = append(devices, u.Devices[i].Hash)
		}
		now := time.Now()
		rows, err := log.Count(ctx, user, devices, now)
		if err != nil {
			return v, err
		}
		if err := log.Forget(ctx, user, devices, now); err != nil {
			return v, err
		}
		v.DeviceRows = &rows
	}
	states, err := limits.Forget(ctx, client, user)
	v.Reset = states > 0 || v.DeviceRows != nil && *v.DeviceRows > 0
	return v, err
}

func explainReset(v resetAnswer) terminal.Answer {
	t := terminal.Table{Columns: []string{"user", "limits"}}
	what := "begin anew"
	if !v.Reset {
		what = "had nothing to forget"
	}
	t.Add(v.UserID, what)
	ans := terminal.Answer{Value: v, Table: t}
	if v.DeviceRows != nil {
		ans.After = strconv.Itoa(*v.DeviceRows) + " rows of the user's devices removed from Cassandra; those of devices that are not the user's any more end 2 days after each was sent"
	}
	return ans
}
