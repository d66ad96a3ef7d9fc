package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

// On the whole way, whatever the older of two notifications of one collapse key waits for:
// once the newer one was accepted it is not sent any more, and otherwise it is.
func TestARetryIsNotSentOverWhatIsNewer(t *testing.T) {
	const superseded, delivered = "SUPPRESSED superseded", "DELIVERED"
	again := push.Result{Class: push.Again, Reason: "ServiceUnavailable"}
	for _, tt := range []struct {
		user  string
		quiet bool          // the older one waits for the user's night to end
		takes time.Duration // so long the provider has the older one, and then it is to be tried again
		key   string        // of the newer one
		newer push.Result
		want  string // how the older one ends
	}{
		{"asked-before", false, 0, "k", push.Result{Class: push.Delivered}, superseded},
		{"in-flight", false, 5 * time.Second, "k", push.Result{Class: push.Delivered}, superseded},
		{"held", true, 0, "k", push.Result{Class: push.Delivered}, superseded},
		{"refused", false, 0, "k", push.Result{Class: push.Refused, Reason: "PayloadEmpty"}, delivered},
		{"other-key", false, 0, "o", push.Result{Class: push.Delivered}, delivered},
		{"none", false, 5 * time.Second, "", push.Result{}, delivered},
	} {
		t.Run(tt.user, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := nightConfig()
				route := apnsApp(t, c, "shop")
				n := newNight(t, route, c)
				defer n.close()
				answer := func(ctx context.Context, d *pipeline.Delivery) push.Result {
					_ = n.accept(ctx, d)
					switch {
					case d.Item.ID == "newer":
						return tt.newer
					case d.Item.Attempt == 0 && !tt.quiet:
						time.Sleep(tt.takes)
						return again
					}
					return push.Result{Class: push.Delivered}
				}
				n.options.Wrap = func(o pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
					o.Routes = map[push.Route]pipeline.Provider{route: calls.NewCaller(10, answer)}
					return o
				}
				n.users(func(client *users.Client) error {
					if tt.quiet {
						if err := client.SetProfile(t.Context(), tt.user, push.Profile{Zone: "Asia/Kolkata"}); err != nil {
							return err
						}
						if err := client.SetPreferences(t.Context(), tt.user, push.Preferences{Quiet: quietNight}); err != nil {
							return err
						}
					}
					_, err := client.RegisterDevice(t.Context(), tt.user, push.Device{Platform: push.APNS, Environment: push.Production, App: "shop", Token: fmt.Sprintf("%064x", tt.user), RegisteredAt: time.Now().Add(-time.Hour)})
					return err
				})
				n.worker()
				time.Sleep(time.Minute) // the registry has built what the worker waits for
				n.produce("older", tt.user, map[string]any{"collapse_key": "k"})
				time.Sleep(time.Second)
				if tt.key != "" {
					n.produce("newer", tt.user, map[string]any{"collapse_key": tt.key, "priority": "critical"})
				}
				if tt.quiet {
					time.Sleep(42 * time.Minute)
				}
				time.Sleep(2 * time.Minute) // longer than the first tier of retries
				rows, pushed := n.became("older")
				if len(rows) < 2 || rows[len(rows)-1] != tt.want || strings.HasPrefix(rows[0], tt.want) {
					t.Errorf("the older one is %q, pushed %v, want it to end %s", rows, pushed, tt.want)
				}
				if tt.key != "" && tt.newer.Class == push.Delivered {
					n.hasBecome("newer", 1, delivered)
				}
			})
		})
	}
}
