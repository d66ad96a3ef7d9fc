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
	for _, spec := range Topics(c) {
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

// The table in docs/operations.md agrees.
func TestRightsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	cells := map[string]map[Role]string{}
	for _, r := range Rights(configs.Default()) {
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
		for _, role := range []Role{Worker, Registry, Operator, Producer, Dashboard} {
			fmt.Fprintf(&table, " %s |", strings.TrimSpace(cells[name][role]))
		}
		table.WriteString("\n")
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/operations.md should have\n%s", &table)
	}
}
