package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/feedback"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// A campaign to users whose tokens were imported for the wrong environment is stopped after
// some fifty of them. What others send goes on as if it were not there, nothing of the
// campaign is lost, and its tokens are kept. When it is released, and the tokens are well,
// all of it is sent.
func TestABadImportStopsItsCampaignAlone(t *testing.T) {
	const bad, passwords = 150, 100
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		n, route := stateNight(t, c, fmt.Sprintf("%064x", "good"))
		defer n.close()
		n.users(func(client *users.Client) error {
			for i := range bad {
				d := push.Device{Platform: push.APNS, Environment: push.Production, App: "shop", Token: fmt.Sprintf("bad0%060x", i), RegisteredAt: time.Now()}
				if _, err := client.RegisterDevice(t.Context(), fmt.Sprint("imported-", i), d); err != nil {
					return err
				}
			}
			return nil
		})
		var guard feedback.Guard
		var asked, mended atomic.Int64
		n.options.Wrap = func(o pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
			o.Routes = map[push.Route]pipeline.Provider{route: calls.NewCaller(10, func(ctx context.Context, d *pipeline.Delivery) push.Result {
				time.Sleep(20 * time.Millisecond)
				if !strings.HasPrefix(d.Device.Token, "bad") || mended.Load() > 0 {
					r := n.accept(ctx, d)
					r.Culprit = guard.Success(&d.Item.Message)
					return r
				}
				asked.Add(1)
				return guard.Dead(&d.Item.Message, push.Result{Class: push.Again, Reason: "BadDeviceToken"}, time.Now())
			})}
			return o
		}
		stop := n.worker()
		defer stop()
		var otps, campaign []string
		for i := range 20 { // the route is known to work
			otps = append(otps, fmt.Sprint("before-", i))
			n.produce(otps[i], "secret-user", nil)
		}
		time.Sleep(10 * time.Second)
		for i := range max(bad, passwords) {
			if i < passwords {
				id := fmt.Sprint("otp-", i)
				n.produce(id, "secret-user", map[string]any{"type": "otp", "priority": "high"})
				otps = append(otps, id)
			}
			id := fmt.Sprint("autumn-", i)
			n.produce(id, fmt.Sprint("imported-", i), map[string]any{"campaign": "autumn", "priority": "low"})
			campaign = append(campaign, id)
		}
		time.Sleep(20 * time.Second)
		for _, id := range otps {
			if rows, pushed := n.became(id); len(pushed) != 1 || !slices.Equal(rows, []string{"DELIVERED"}) {
				t.Errorf("%s: %v, pushed %d times", id, rows, len(pushed))
			}
		}
		if got := asked.Load(); got < 50 || got > 50+2*10 {
			t.Errorf("the provider was asked for %d of the campaign, want some fifty and what was under way", got)
		}
		failed, held := 0, 0
		for _, id := range campaign {
			switch rows, _ := n.became(id); {
			case slices.Equal(rows, []string{"FAILED BadDeviceToken"}):
				failed++
			case slices.Equal(rows, []string{"HELD campaign_quarantined"}), slices.Equal(rows, []string{"HELD BadDeviceToken"}):
				held++
			default:
				t.Errorf("%s: %v", id, rows)
			}
		}
		if failed != 50 || held != bad-failed {
			t.Errorf("of the campaign %d failed and %d wait, want 50 and the rest", failed, held)
		}
		stopped := 0
		n.eachEvent(func(e *events.Event, record string) {
			for _, q := range e.Quarantines {
				switch length := q.Until.Sub(q.At).Round(time.Second); {
				case q.Route != route.String() || q.Origin != "campaign/autumn":
					t.Errorf("told %+v", q)
				case length == time.Hour:
					stopped++
				case length != time.Minute || stopped > 0: // on trial, as none of the others was accepted meanwhile
					t.Errorf("told %+v", q)
				}
			}
		})
		told, _ := n.states()
		if r := told[len(told)-1].State.Routes[0]; stopped != 1 || r.Gate != "open" || r.Quarantined != 1 {
			t.Errorf("%d quarantines told; the route: %+v", stopped, r)
		}

		mended.Store(1)
		o, err := wiring.Redis(c)
		if err != nil {
			t.Fatal(err)
		}
		o.Dialer = n.options.Dial
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		store, err := pauses.New(client, wiring.Pauses(c, n.options.Log))
		if err != nil {
			t.Fatal(err)
		}
		if there, err := store.Release(t.Context(), route, push.Origin{Kind: push.OfCampaign, Name: "autumn"}); err != nil || !there {
			t.Fatal(there, err)
		}
		time.Sleep(10 * time.Minute)
		delivered := 0
		for _, id := range campaign {
			if rows, _ := n.became(id); slices.Contains(rows, "DELIVERED") {
				delivered++
			}
		}
		if delivered != held {
			t.Errorf("%d of the campaign were sent after its release, want all %d", delivered, held)
		}
	})
}
