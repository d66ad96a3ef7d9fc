package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

func newDevicesCommand(a *app) *cobra.Command {
	return newGroup("devices", "Users' devices: import, add, look up, remove",
		newImportCommand(a), newDevicesAddCommand(a), newDevicesGetCommand(a), newDevicesRemoveCommand(a))
}

func newDevicesAddCommand(a *app) *cobra.Command {
	var (
		d         deviceLine
		tokenFile string
	)
	cmd := &cobra.Command{
		Use:   "add --user USER --platform " + push.PlatformNames("|") + " --app APP --token-file FILE|-",
		Short: "Register one device",
		Long: `Register one device of a user, or refresh it. The token is read from a file or from standard input
("-"), never from a flag, because every user of the machine can read flags.`,
		Example: "  pushctl devices add --user u42 --platform apns --app shop --environment sandbox --token-file token.txt\n  pbpaste | pushctl devices add --user u42 --platform fcm --app shop --token-file -",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"user", "platform", "app", "token-file"} {
				if !cmd.Flags().Changed(name) {
					return usagef("devices add needs --%s", name)
				}
			}
			return a.addDevice(cmd.Context(), d, tokenFile)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&d.UserID, "user", "", "user `id`")
	flags.StringVar(&d.Platform, "platform", "", push.PlatformNames(" or "))
	flags.StringVar(&d.App, "app", "", "`name` of the app, as in the messages")
	flags.StringVar(&d.Environment, "environment", "", environmentWords())
	flags.StringVar(&d.Locale, "locale", "", "language `tag`, such as en-GB")
	flags.StringVar(&d.AppVersion, "app-version", "", "`version` of the app on the device")
	flags.StringVar(&d.RegisteredAt, "registered-at", "", "`time` (RFC 3339) when the app got the token; default: now")
	flags.StringVar(&tokenFile, "token-file", "", "`file` that holds the token; - = standard input")
	return cmd
}

// maxTokenFile is more than the longest token and its line break.
const maxTokenFile = 8 << 10

func (a *app) addDevice(ctx context.Context, d deviceLine, tokenFile string) error {
	in, err := a.open(tokenFile)
	if err != nil {
		return err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxTokenFile))
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	d.Token = strings.TrimSpace(string(text))
	r, err := registration(&d, time.Now())
	if err != nil {
		return usageError{err}
	}
	log, err := a.usersLog(ctx)
	if err != nil {
		return err
	}
	hash, err := users.NewClient(log).RegisterDevice(ctx, r.User, r.Device)
	if err != nil {
		return err
	}
	t := terminal.Table{Columns: []string{"user", "hash"}}
	t.Add(r.User, hash)
	return a.show(terminal.Answer{Value: map[string]string{"user_id": r.User, "hash": hash}, Table: t})
}

func newDevicesGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get USER",
		Short: "A user's devices, as the workers see them",
		Long: `Show the devices of a user as they stand in Redis, where the workers read them. A new registration
appears when the registry has applied it. Tokens are never shown; a device is identified by the hash of
its token. Only the latest registrations are kept, up to registry.devices_per_user and
registry.devices_per_app; the answer also says how many were dropped. Exit status 1 if the user has no
device.`,
		Example: "  pushctl devices get u42\n  pushctl devices get u42 -o json | jq -r '.devices[].hash'",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.showDevices(cmd.Context(), args[0]) },
	}
}

// devicesAnswer is the JSON answer of `pushctl devices get`.
type devicesAnswer struct {
	UserID  string             `json:"user_id"`
	Devices []forms.Registered `json:"devices"`
	// Dropped counts the registrations over the limits. The latest of them
	// dates from DroppedUpTo.
	Dropped     int        `json:"dropped"`
	DroppedUpTo *time.Time `json:"dropped_up_to,omitempty"`
	// Unreadable: a device is in quarantine, and none of its earlier records
	// can be used.
	Unreadable bool `json:"unreadable"`
}

func (a *app) showDevices(ctx context.Context, id string) error {
	u, err := a.user(ctx, id)
	if err != nil {
		return err
	}
	if err := a.show(explainDevices(id, u)); err != nil {
		return err
	}
	if len(u.Devices) == 0 {
		return errDifference
	}
	return nil
}

func explainDevices(id string, u *users.Stored) terminal.Answer {
	value := devicesAnswer{UserID: id, Devices: []forms.Registered{}, Dropped: u.Dropped, Unreadable: u.Quarantine&push.DeviceUnread != 0}
	t := terminal.Table{Columns: []string{"hash", "platform", "environment", "app", "locale", "app version", "registered at"}}
	for i := range u.Devices {
		r := forms.OfDevice(&u.Devices[i])
		value.Devices = append(value.Devices, r)
		t.Add(r.Hash, r.Platform, r.Environment, r.App, r.Locale, r.AppVersion, r.RegisteredAt.Format("2006-01-02T15:04:05.000Z"))
	}
	ans := terminal.Answer{Value: value, Table: t}
	if len(u.Devices) == 0 {
		ans.Before = fmt.Sprintf("user %s has no device", terminal.Word(id))
	}
	if value.Unreadable {
		ans.Before = fmt.Sprintf("user %s has a device that cannot be read: pushctl users quarantine ls", terminal.Word(id))
	}
	if u.Dropped > 0 {
		value.DroppedUpTo = &u.DroppedUpTo
		ans.Value = value
		ans.After = fmt.Sprintf("%d older devices, registered up to %s, were dropped (registry.devices_per_user, registry.devices_per_app)",
			u.Dropped, u.DroppedUpTo.UTC().Format(time.RFC3339))
	}
	return ans
}

func newDevicesRemoveCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "rm USER HASH...|--all",
		Short: "Remove devices of a user",
		Long: `Remove devices of a user by the hashes that ` + "`pushctl devices get`" + ` shows, or all that it shows.
Removing a device that does not exist is not an error.`,
		Example: "  pushctl devices rm u42 Zm9vYmFyYmF6cXV4\n  pushctl devices rm u42 --all",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 1) {
				return usagef("devices rm needs either hashes of devices or --all")
			}
			return a.removeDevices(cmd.Context(), args[0], args[1:], all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all devices of the user in Redis")
	return cmd
}

func (a *app) removeDevices(ctx context.Context, user string, hashes []string, all bool) error {
	if all {
		u, err := a.user(ctx, user)
		if err != nil {
			return err
		}
		for i := range u.Devices {
			hashes = append(hashes, u.Devices[i].Hash)
		}
	}
	log, err := a.usersLog(ctx)
	if err != nil {
		return err
	}
	client := users.NewClient(log)
	t := terminal.Table{Columns: []string{"user", "removed"}}
	removed := []string{}
	for _, h := range hashes {
		if err := client.RemoveDevice(ctx, user, h); err != nil {
			return partlyf(invalidIsUsage(err), "%d of %d devices were removed; the command can be repeated", len(removed), len(hashes))
		}
		removed = append(removed, h)
		t.Add(user, h)
	}
	ans := terminal.Answer{Value: map[string]any{"user_id": user, "removed": removed}, Table: t}
	if len(removed) == 0 {
		ans.Before = fmt.Sprintf("user %s has no device", terminal.Word(user))
	}
	return a.show(ans)
}
