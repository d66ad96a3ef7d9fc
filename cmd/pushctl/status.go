package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/push"
)

func newStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status ID",
		Short: "Why a notification did or did not arrive: every state of every device, in words",
		Long: `Every state of every device of a notification in the order of time, the outcome that follows from them,
and why, in words. DELIVERED means accepted by the provider: what the device does with it nobody says.
Steps count the records that a device was handed over by: a retry is one step on, and so is a redrive.
A record without a usable id stands under kafka:… (pushctl dlq show tells it).

Exit status 1 if the id has no state; then it says what that may mean.`,
		Example: "  pushctl status 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21\n  pushctl status 0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21 -o json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.showStatus(cmd.Context(), args[0]) },
	}
}

// statusRow is a row of the status table as scripts see it.
type statusRow struct {
	At         time.Time `json:"at"`
	Step       int16     `json:"step"`
	State      string    `json:"state"`
	Device     string    `json:"device"` // hash of the token; empty before the device look-up
	Provider   string    `json:"provider"`
	ProviderID string    `json:"provider_id"`
	Reason     string    `json:"reason"`
	Meaning    string    `json:"meaning"` // of the reason, in words
	UserHash   string    `json:"user_hash"`
}

// statusAnswer is what `pushctl status` says of a notification.
type statusAnswer struct {
	ID      string         `json:"id"`
	Outcome string         `json:"outcome"`
	Meaning string         `json:"meaning"` // of the outcome, in words
	Devices []statusDevice `json:"devices"`
	States  []statusRow    `json:"states"`
}

// statusTime bounds the look-up once the store is open.
const statusTime = 30 * time.Second

func (a *app) showStatus(ctx context.Context, id string) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	store, err := a.statusStore(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	found, err := store.Read(ctx, []string{id})
	if err != nil {
		return err
	}
	if err := a.show(explainStatus(id, found[0], storeTimes{keeps: c.Cassandra.TTL, delay: longestDelay(c)}, time.Now())); err != nil {
		return err
	}
	if len(found[0]) == 0 {
		return errDifference
	}
	return nil
}

// storeTimes are what an answer about rows, or none, depends on.
type storeTimes struct {
	keeps time.Duration // how long the store keeps rows
	delay time.Duration // of the last retry tier: what was handed over longer ago should have been taken up
}

func longestDelay(c *configs.Config) time.Duration {
	return slices.Max(append(slices.Clone(c.Retries.Tiers), c.Retries.Deferral))
}

// explainStatus puts a notification's rows in the order of time and says what
// follows from them.
func explainStatus(id string, rows []push.Row, times storeTimes, now time.Time) terminal.Answer {
	history := &push.History{Rows: rows}
	outcome := history.Outcome()
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(x, y push.Row) int { return x.At.Compare(y.At) })
	value := statusAnswer{ID: id, Outcome: outcome.String(), Devices: devicesOf(history, rows, times, now), States: make([]statusRow, 0, len(rows))}
	t := terminal.Table{Columns: []string{"time", "step", "state", "device", "provider", "reason", "provider id"}}
	for _, r := range rows {
		s := statusRow{At: r.At, Step: r.Step, State: r.State.String(), Device: r.Device, Provider: providerOf(r),
			ProviderID: r.ProviderID, Reason: r.Reason, Meaning: meaning(r.Reason, ""), UserHash: strconv.FormatUint(r.UserHash, 16)}
		value.States = append(value.States, s)
		t.Add(r.At.UTC().Format("2006-01-02T15:04:05.000Z"), strconv.Itoa(int(r.Step)), s.State, s.Device, s.Provider, s.Reason, s.ProviderID)
	}
	ans := terminal.Answer{Table: t}
	if len(rows) == 0 {
		value.Meaning = explainNothing(id, times.keeps, now)
		ans.Before = "notification " + terminal.Word(id) + " has no state: " + value.Meaning
	} else {
		value.Meaning = explainOutcome(id, outcome, value.Devices)
		ans.After = "outcome: " + value.Outcome + ": " + terminal.Word(value.Meaning)
		for _, d := range value.Devices {
			ans.After += "\n  " + terminal.Word(d.String())
		}
	}
	ans.Value = value
	return ans
}

func providerOf(r push.Row) string {
	if r.Platform == push.NoPlatform {
		return ""
	}
	return r.Platform.String()
}

// statusDevice is what became of one device; an empty name is the notification
// as a whole, before its device look-up.
type statusDevice struct {
	Device   string    `json:"device"`
	Provider string    `json:"provider"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Step     int16     `json:"step"`
	Meaning  string    `json:"meaning"`
}

func (d statusDevice) String() string {
	name := "device " + d.Device
	if d.Device == "" {
		name = "the whole of it"
	}
	if d.Provider != "" {
		name += " (" + d.Provider + ")"
	}
	return name + ": " + d.State + ": " + d.Meaning
}

// devicesOf are the devices that count for the outcome, in the order in which
// they came up. Rows are in the order of time.
func devicesOf(h *push.History, rows []push.Row, times storeTimes, now time.Time) []statusDevice {
	devices := []statusDevice{}
	for i := range rows {
		name := rows[i].Device
		if (name == "") == h.HasDevices() || slices.ContainsFunc(devices, func(d statusDevice) bool { return d.Device == name }) {
			continue
		}
		state, _ := h.DeviceState(name)
		// The row that says so: the last one of that state.
		var last *push.Row
		for j := range rows {
			if r := &rows[j]; r.Device == name && r.State == state && (last == nil || r.Step >= last.Step) {
				last = r
			}
		}
		devices = append(devices, statusDevice{Device: name, Provider: providerOf(*last), State: state.String(), Since: last.At, Step: last.Step,
			Meaning: explainState(last, times, now)})
	}
	return devices
}

// explainState says what a row means for its device.
func explainState(r *push.Row, times storeTimes, now time.Time) string {
	why := r.Reason
	if words := meaning(r.Reason, ""); words != "" {
		why += ", " + words
	}
	since := r.At.UTC().Format("2006-01-02 15:04:05")
	late := ""
	if now.Sub(r.At) > times.delay {
		late = "; that is longer ago than the longest delay: do workers read the retry topics (pushctl lag)?"
	}
	switch r.State {
	case push.StateDelivered:
		switch r.Step {
		case 0:
			return "accepted by the provider at " + since
		case 1:
			return "accepted by the provider at " + since + ", after one hand-over"
		}
		return "accepted by the provider at " + since + ", after " + strconv.Itoa(int(r.Step)) + " hand-overs"
	case push.StateRetrying:
		return "tried at " + since + " (" + why + "), and handed to a retry topic, to be tried again when its delay has passed" + late
	case push.StateHeld:
		return "held at " + since + " (" + why + "): not tried, it waits for its provider or its hours" + late
	case push.StateSending:
		return "a worker began to send it at " + since + ", and has not noted what became of it"
	case push.StatePending:
		return "received at " + since + ", and not taken up yet"
	case push.StateUnknown:
		return strings.TrimSuffix("it may have been delivered or not ("+why+")", " ()")
	}
	if why == "" {
		return "at " + since
	}
	return why
}

// explainOutcome says what an outcome means.
func explainOutcome(id string, o push.Outcome, devices []statusDevice) string {
	delivered := 0
	for _, d := range devices {
		if d.State == push.StateDelivered.String() {
			delivered++
		}
	}
	switch o {
	case push.OutcomeDelivered:
		return "accepted by the provider for " + strconv.Itoa(delivered) + " of " + strconv.Itoa(len(devices)) + " devices"
	case push.OutcomeOpen:
		return "not finished: at least one device is still to be tried"
	case push.OutcomeFailed:
		return "no device can ever get it"
	case push.OutcomeExpired:
		return "its time was over before it could be sent"
	case push.OutcomeSuppressed:
		return "it was not to be sent"
	case push.OutcomeShed:
		return "dropped because of overload"
	case push.OutcomeDeadLettered:
		return "it is in the DLQ, where it can be redriven: pushctl dlq show " + id
	}
	return "an attempt has no result, and the lane does not try twice"
}
