package wiring

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/configs"
)

// Every topic has a writer and a reader, and a producer of notifications may not
// touch anything else.
func TestEveryTopicHasRights(t *testing.T) {
	c := configs.Default()
	c.Gateway.Fanout.Enabled, c.Gateway.Webhooks.Senders = true, []string{"orders", "auth"}
	of := map[string]map[string][]Role{} // by topic and operation
	for _, r := range Rights(c) {
		if r.Resource != "topic" {
			continue
		}
		if of[r.Name] == nil {
			of[r.Name] = map[string][]Role{}
		}
		for _, o := range r.Operations {
			of[r.Name][o] = append(of[r.Name][o], r.Role)
		}
	}
	for _, spec := range append(Topics(c), FanoutTopics(c)...) {
		if may := of[spec.Name]; !slices.Contains(may["Create"], Operator) || len(may["Write"]) == 0 || len(may["Read"]) == 0 {
			t.Errorf("%s: %v", spec.Name, may)
		}
		delete(of, spec.Name)
	}
	if len(of) > 0 {
		t.Errorf("rights on topics that there are not: %v", of)
	}
	for _, name := range TopicNames(c) { // a worker checks them when it starts
		if !slices.ContainsFunc(Rights(c), func(r Right) bool { return r.Role == Worker && r.Name == name }) {
			t.Errorf("a worker may not even see %s", name)
		}
	}
	for _, r := range Rights(c) {
		lane := slices.ContainsFunc(c.Lanes, func(l configs.Lane) bool { return l.Topic == r.Name })
		if r.Role == Producer && (!lane || !slices.Equal(r.Operations, []string{"Write"})) {
			t.Errorf("a producer may %v %s", r.Operations, r.Name)
		}
		if r.Role == Registry && lane {
			t.Errorf("a registry may %v %s", r.Operations, r.Name)
		}
	}
}

// What is not configured gives no rights: none on fan-outs without them, a gateway none on
// lanes without a service type, and Read on push.users only if it reads users.
func TestRightsFollowTheConfiguration(t *testing.T) {
	may := func(c *configs.Config, role Role, name string) string {
		for _, r := range Rights(c) {
			if r.Role == role && r.Name == name {
				return strings.Join(r.Operations, ", ")
			}
		}
		return ""
	}
	c := configs.Default()
	for _, r := range Rights(c) {
		if r.Role == FanoutWorker || r.Role == Webhooks || strings.Contains(r.Name, "push.fanout") || strings.Contains(r.Name, "push.webhooks") {
			t.Errorf("without fan-outs: %+v", r)
		}
	}
	if got := may(c, HTTPGateway, "push.users"); got != "Write" {
		t.Errorf("without a registry a gateway may %s push.users", got)
	}
	if got := may(c, HTTPGateway, "push.events"); got != "" {
		t.Errorf("without limits of senders a gateway may %q push.events", got)
	}
	if got := may(c, Registry, "pushfleet.registry.audiences"); got != "" {
		t.Errorf("a registry that notes nobody may %s as one that does", got)
	}
	c.Registry.Audiences = true
	if got := may(c, Registry, "pushfleet.registry.audiences"); got != "Read" {
		t.Errorf("a registry that notes who uses an app may %q", got)
	}
	c.Gateway.Registry, c.Gateway.Fanout.Enabled, c.Gateway.Limits.Default.Hour = true, true, 1000
	c.Gateway.Lanes = []configs.GatewayLane{{ServiceType: "offers", Lane: "promotional"}}
	for name, want := range map[string]string{
		"push.users": "Read, Write", "push.events": "Write", "push.fanout": "Write", "push.promotional": "Write", "pushfleet.promotional": "Describe", "push.critical": "", "pushfleet.critical": "",
	} {
		if got := may(c, HTTPGateway, name); got != want {
			t.Errorf("a gateway may %q %s, want %q", got, name, want)
		}
	}
	if got := may(c, FanoutWorker, "push.critical"); got != "Write" {
		t.Errorf("fan-outs may %q push.critical: their topics are there for each lane", got)
	}
}

// The table in docs/operations.md agrees, which is that of a gateway that reads users and
// takes messages to topics, with limits of senders, and of a fleet that tells a sender and
// notes who uses an app.
func TestRightsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	cells := map[string]map[Role]string{}
	c := configs.Default()
	c.Gateway.Registry, c.Gateway.Fanout.Enabled, c.Gateway.Webhooks.Senders, c.Registry.Audiences = true, true, []string{"orders"}, true
	c.Gateway.Limits.Default.Hour = 1000
	for _, r := range Rights(c) {
		name := "`" + r.Pattern + "`"
		if r.Resource == "group" {
			name = "group " + name
		}
		if cells[name] == nil {
			patterns, cells[name] = append(patterns, name), map[Role]string{}
		}
		words := strings.Join(r.Operations, ", ")
		if has := cells[name][r.Role]; has != "" && has != words {
			t.Errorf("%s of %s is %s and %s", r.Role, name, has, words)
		}
		cells[name][r.Role] = words
	}
	var table strings.Builder
	for _, name := range patterns {
		fmt.Fprintf(&table, "| %s |", name)
		for _, role := range Roles() {
			fmt.Fprintf(&table, " %s |", strings.TrimSpace(cells[name][role]))
		}
		table.WriteString("\n")
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/operations.md should have\n%s", &table)
	}
}
