package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
)

func newUsersCommand(a *app) *cobra.Command {
	return newGroup("users", "Users: erase one, list those whose records cannot be read",
		newEraseCommand(a), newGroup("quarantine", "Users with a record that cannot be read", newQuarantineListCommand(a)))
}

func newQuarantineListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List records in push.users that cannot be read",
		Long: `List the parts of users (their preferences, profile, limits, a device) whose latest record in push.users cannot be read.
Either its version or platform is unknown to the registry (unknown_version, unknown_platform), or it
breaks a rule (broken_rule). The place is that of the record in the topic. The part's earlier record
still counts. Without one:

  preferences, broken_rule      notifications are SUPPRESSED(preferences_unreadable), critical ones HELD
  preferences, unknown_version  notifications are HELD(user_quarantined) until they expire
  a device                      is not used; if the user has no other, notifications are HELD(user_quarantined)
  profile, limits               nothing waits: the user is one without a profile, or without personal limits

A valid record of the same part, or its removal, ends the quarantine: pushctl prefs set, pushctl devices
add or rm. After an upgrade that knows the version, run pushworker registry --rebuild. A device whose
platform is known after an upgrade is used at once.

Exit status 1 if there are any.`,
		Example: "  pushctl users quarantine ls\n  pushctl users quarantine ls -o json | jq -r '.[].user_id'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listQuarantine(cmd.Context()) },
	}
}

// quarantineRow is a part in quarantine in the JSON answer.
type quarantineRow struct {
	UserID string    `json:"user_id"`
	Part   string    `json:"part"`   // preferences, device, profile or limits
	Device string    `json:"device"` // its hash
	Reason string    `json:"reason"`
	Place  string    `json:"place"`
	Stands bool      `json:"stands"` // the part's earlier record still counts
	At     time.Time `json:"at"`     // when the registry reported it; the zero time = not yet
}

func (a *app) listQuarantine(ctx context.Context) error {
	told, err := a.readQuarantine(ctx)
	if err != nil {
		return err
	}
	client, err := a.reachRedis(ctx)
	if err != nil {
		return err
	}
	now, err := users.InQuarantine(ctx, client)
	if err != nil {
		return err
	}
	if err := a.show(explainQuarantine(told, now)); err != nil {
		return err
	}
	if len(now) > 0 {
		return errDifference
	}
	return nil
}

// readQuarantine reads the registry's reports, by the keys of the parts.
func (a *app) readQuarantine(ctx context.Context) (map[string]users.Quarantined, error) {
	if _, err := a.reachKafka(ctx, kafka.QuarantineTopic); err != nil {
		return nil, err
	}
	opts, err := a.kafkaOptions()
	if err != nil {
		return nil, err
	}
	log, err := kafka.NewFollower(opts, kafka.QuarantineTopic, nil)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	extent, err := log.Extent(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, err
	}
	told := make(map[string]users.Quarantined)
	err = log.ReadExtent(ctx, extent, func(r kafka.Record) error {
		delete(told, string(r.Key))
		if q, err := users.ReadQuarantined(r.Value); r.Value != nil && err == nil {
			told[string(r.Key)] = q
		}
		return nil
	})
	return told, err
}

// explainQuarantine shows the parts that are in quarantine now. Of a part that
// the registry has not reported yet, only the key is known.
func explainQuarantine(told map[string]users.Quarantined, now map[string]bool) terminal.Answer {
	rows := []quarantineRow{}
	t := terminal.Table{Columns: []string{"user", "part", "device", "reason", "place", "before it", "since"}}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		q, ok := told[key]
		if !ok {
			q = users.QuarantinedAt(key)
		}
		r := quarantineRow{UserID: q.User, Part: "preferences", Device: q.Device, Reason: q.Reason, Stands: q.Stands}
		switch {
		case q.Device != "":
			r.Part = "device"
		case q.Part != "":
			r.Part = string(q.Part)
		}
		before, since := "nothing", ""
		if ok {
			r.Place = kafka.UsersTopic + "/" + strconv.Itoa(q.Partition) + "/" + strconv.FormatInt(q.Offset, 10)
			r.At = time.UnixMilli(q.AtMS).UTC()
			since = r.At.Format(time.RFC3339)
		}
		if q.Stands {
			before = "holds"
		}
		rows = append(rows, r)
		t.Add(r.UserID, r.Part, r.Device, r.Reason, r.Place, before, since)
	}
	ans := terminal.Answer{Value: rows, Table: t}
	if len(rows) == 0 {
		ans.Before = "nobody is in quarantine"
	} else {
		ans.After = fmt.Sprintf("%d parts of users cannot be read", len(rows))
	}
	return ans
}
