//go:build unix

package endtoend

import (
	"testing"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/grafana"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// Every record has exactly one final outcome, which is what was meant, and
// what the providers saw.
func TestEveryRecordHasOneOutcome(t *testing.T) {
	const records = 50_000
	people := newCrowd(t, records)
	w := newWorld(t, setup{
		faults: sim.RouteSet{
			APNS: sim.Faults{Internal: 0.01, Unavailable: 0.01},
			// None that asks the whole route to wait: those are bench/chaos's.
			FCM: sim.Faults{Internal: 0.005, Unavailable: 0.005, BadGateway: 0.005},
		},
		configure: func(c *configs.Config) { caps(c, people.Cap) },
	})
	registry := w.populate(people)
	worker := w.worker()
	check(t, w.Produce(waiting(t), fleet.FromCrowd(people.Records(), records)))
	r := w.clean(fleet.AccountOptions{Cap: people.Cap})
	if r.Resent > 0 {
		t.Errorf("%d pushes were accepted twice, and nothing has failed", r.Resent)
	}
	for _, o := range []push.Outcome{push.OutcomeDelivered, push.OutcomeSuppressed, push.OutcomeFailed, push.OutcomeExpired, push.OutcomeDeadLettered} {
		if r.Outcomes[o] == 0 {
			t.Errorf("nothing ended %s: the crowd is not what it should be", o)
		}
	}
	totals := w.Sim.Ledger().Totals()
	for _, fault := range []struct {
		provider string
		reply    sim.Reply
	}{
		{"apns", sim.APNSInternalServerError}, {"apns", sim.APNSServiceUnavailable},
		{"fcm", sim.FCMInternal}, {"fcm", sim.FCMUnavailable}, {"fcm", sim.FCMBadGateway},
	} {
		if totals.Providers[fault.provider].Replies[fault.reply.String()] == 0 {
			t.Errorf("%s never answered %s", fault.provider, fault.reply)
		}
	}
	check(t, w.AwaitPruned(waiting(t), people))
	w.dashboardsShow(grafana.OfWorkers(), worker, registry)
}
