// Package stages holds the steps that a batch takes before it is sent, one
// file each: dedupe, journal, accept, shed, superseded, preferences, devices, inbox, limits.
// Each implements pipeline.Stage and declares the small store interface it needs.
package stages

import "github.com/pushfleet/pushfleet/pipeline"

// The stages as steps, in the order in which they run. Alerts and dashboards know
// these words.
const (
	StepDedupe      pipeline.Step = "dedupe"
	StepJournal     pipeline.Step = "journal" // of lanes whose users' messages are found by user
	StepAccept      pipeline.Step = "accept"
	StepShed        pipeline.Step = "shed"       // of lanes that shed, and no retries
	StepSuperseded  pipeline.Step = "superseded" // retries only
	StepPreferences pipeline.Step = "preferences"
	StepDevices     pipeline.Step = "devices"
	StepInbox       pipeline.Step = "inbox" // of lanes that keep messages for users
	StepLimits      pipeline.Step = "limits"
)

// NewOrder returns the stages in the order in which they run. Dedupe is first,
// so that nothing is written about an id that belongs to another user; journal
// follows, so that what is not sent is noted too; accept is next, so that no store is
// asked about expired notifications; shed comes as early as it can, as it is there to save
// work; limits is last, so that only what is going to be sent spends a cap. Superseded, which only retries need, and shed, which they must
// not have, may be nil, and so may journal and inbox.
func NewOrder(d *Dedupe, j *Journal, a *Accept, h *Shed, s *Superseded, p *Preferences, v *Devices, i *Inbox, l *Limits) []pipeline.Stage {
	order := []pipeline.Stage{d}
	if j != nil {
		order = append(order, j)
	}
	if order = append(order, a); h != nil {
		order = append(order, h)
	}
	if s != nil {
		order = append(order, s)
	}
	if order = append(order, p, v); i != nil {
		order = append(order, i)
	}
	return append(order, l)
}
