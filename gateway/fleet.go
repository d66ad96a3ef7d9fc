package gateway

import (
	"fmt"
	"slices"
	"strings"
)

// forDashboards is what the sessions of dashboards are signed for.
const forDashboards = "pushfleet dashboard"

// SeesFleet says in words why a key does not open the dashboard of a fleet with these apps;
// nil = it does. A dashboard tells of all senders and apps, so that it takes a right of its
// own, and all apps: the right to read is about what a key's own sender has sent.
func (c *Caller) SeesFleet(apps []string) error {
	if !c.may(Fleet) {
		return fmt.Errorf("the key %s has not the right %q, without which it opens no dashboard", c.Name, Fleet)
	}
	missing := slices.DeleteFunc(slices.Clone(apps), c.has)
	if len(missing) > 0 {
		return fmt.Errorf("the key %s is not for all apps, and a dashboard shows all: %s missing", c.Name, strings.Join(missing, ", "))
	}
	return nil
}

// ActsOnFleet reports whether a key that sees a fleet may also change something there.
func (c *Caller) ActsOnFleet() bool { return c.may(Admin) }

// OfFleet counts the keys that see the fleet with these apps, and those of them that act there.
func (c *Callers) OfFleet(apps []string) (see, act int) {
	for _, caller := range c.now.Load().names {
		if caller.SeesFleet(apps) == nil {
			see++
			if caller.ActsOnFleet() {
				act++
			}
		}
	}
	return see, act
}

// DashboardSecret is what signs a caller's sessions on dashboards: another one for each key,
// and when the first line of the secret changes.
func (s *Signer) DashboardSecret(c *Caller) []byte {
	return s.signed(nil, forDashboards, string(c.hash[:]))
}
