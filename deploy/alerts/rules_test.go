// Package alerts_test holds the alerting rules to what the code says: every
// metric and label in them exists, and every alert is explained.
package alerts_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/declaredtest"
)

// rule is an alerting rule. A field that is not here is refused.
type rule struct {
	Alert       string `yaml:"alert"`
	Expr        string `yaml:"expr"`
	For         string `yaml:"for"`
	Labels      map[string]string
	Annotations map[string]string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// What an expression may use besides our metrics and labels. A new word is
// added with a thought: it may be a metric that is misspelt.
var words = []string{"sum", "max", "min", "by", "and", "rate", "increase", "deriv", "absent", "histogram_quantile", "scalar"}

// Labels that Prometheus gives every series, or that a histogram has.
var givenLabels = []string{"instance", "job", "le"}

var (
	selectors  = regexp.MustCompile(`(push_[a-z_]+)(?:\{([^}]*)\})?`)
	matchers   = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	groupings  = regexp.MustCompile(`by \(([^)]*)\)`)
	identifier = regexp.MustCompile(`\b[a-zA-Z_][a-zA-Z0-9_]*\b`)
	ranges     = regexp.MustCompile(`\[[0-9smhd:]+\]`)
	plain      = regexp.MustCompile(`^[a-z-]+$`)
	inText     = regexp.MustCompile(`\$labels\.(\w+)`)
)

// TestRulesNameWhatExists: metrics with their labels, and label values that
// are words of ours, stand in the code.
func TestRulesNameWhatExists(t *testing.T) {
	metrics, literals := declaredtest.Read(t, filepath.Join("..", ".."))
	for _, r := range readRules(t) {
		exprs := []string{r.Expr}
		for _, text := range r.Annotations {
			if i := strings.Index(text, "push_"); i >= 0 { // a query in the text
				exprs = append(exprs, selectors.FindString(text[i:]))
			}
		}
		known := slices.Clone(givenLabels) // labels of all metrics in the rule
		for _, expr := range exprs {
			found := selectors.FindAllStringSubmatch(expr, -1)
			if len(found) == 0 {
				t.Errorf("%s: no metric in %q", r.Alert, expr)
			}
			for _, s := range found {
				m, ok := metrics.Find(s[1])
				if !ok {
					t.Errorf("%s: no code declares %s", r.Alert, s[1])
					continue
				}
				known = append(known, m.Labels...)
				for _, match := range matchers.FindAllStringSubmatch(s[2], -1) {
					if !slices.Contains(m.Labels, match[1]) {
						t.Errorf("%s: %s has the labels %q, not %s", r.Alert, s[1], m.Labels, match[1])
					}
					for _, value := range strings.Split(match[3], "|") {
						if plain.MatchString(value) && !literals[value] {
							t.Errorf("%s: nothing sets %s to %q", r.Alert, match[1], value)
						}
					}
				}
			}
		}
		for _, g := range groupings.FindAllStringSubmatch(r.Expr, -1) {
			for _, label := range strings.Split(g[1], ", ") {
				if !slices.Contains(known, label) {
					t.Errorf("%s: grouped by %s, which none of its metrics has", r.Alert, label)
				}
			}
		}
		rest := groupings.ReplaceAllString(ranges.ReplaceAllString(selectors.ReplaceAllString(r.Expr, ""), ""), "by")
		for _, word := range identifier.FindAllString(rest, -1) {
			if !slices.Contains(words, word) {
				t.Errorf("%s: what is %q in its expression?", r.Alert, word)
			}
		}
		for name, text := range r.Annotations {
			for _, l := range inText.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(known, l[1]) {
					t.Errorf("%s: its %s shows the label %s, which it does not have", r.Alert, name, l[1])
				}
			}
		}
	}
}

// TestDeadLettersOfOneRouteAreSeen: when a route fails what it is sent, its
// used-up retries reach the DLQ at the limiter's floor and no faster. The alert
// must be below that.
func TestDeadLettersOfOneRouteAreSeen(t *testing.T) {
	floor := configs.Default().Gates.DeadLetters.Floor
	for _, r := range readRules(t) {
		if r.Alert != "PushDeadLetters" {
			continue
		}
		_, bound, found := strings.Cut(r.Expr, "> ")
		threshold, err := strconv.ParseFloat(strings.TrimSpace(bound), 64)
		if !found || err != nil {
			t.Fatalf("no threshold in %q: %v", r.Expr, err)
		}
		if threshold > floor/2 {
			t.Errorf("it wants more than %g a second, and one route gives %g at the most when all its sends fail", threshold, floor)
		}
		return
	}
	t.Fatal("there is no PushDeadLetters")
}

// TestRulesAreExplained: each has a severity, texts and an entry in the
// operator's page, and no entry there is for an alert that is gone.
func TestRulesAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Push\w+)$`).FindAllSubmatch(page, -1) {
		explained[string(m[1])] = true
	}
	for _, r := range readRules(t) {
		if !explained[r.Alert] {
			t.Errorf("docs/operations.md does not explain %s, or two rules have that name", r.Alert)
		}
		delete(explained, r.Alert)
		if s := r.Labels["severity"]; s != "page" && s != "ticket" || len(r.Labels) != 1 {
			t.Errorf("%s: labels %v", r.Alert, r.Labels)
		}
		if want := "docs/operations.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %q", r.Alert, r.Annotations["runbook"], want)
		}
		if len(r.Annotations) != 3 || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: annotations %v", r.Alert, r.Annotations)
		}
	}
	for name := range explained {
		t.Errorf("docs/operations.md explains %s, which is no rule", name)
	}
}

// TestRulesFire runs Prometheus' own tool over rules_test.yaml, where there is
// one: series go in, alerts come out. make test sees to it that there is.
func TestRulesFire(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool on the PATH: run make test, or deploy/local/fetch.sh --tests, which puts it into servers/promtool of the cache")
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestRulesTested: every alert has a case in which it fires.
func TestRulesTested(t *testing.T) {
	text, err := os.ReadFile("rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name string `yaml:"alertname"`
				Want []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	fires := map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Want) > 0
		}
	}
	for _, r := range readRules(t) {
		if !fires[r.Alert] {
			t.Errorf("no case of rules_test.yaml in which %s fires", r.Alert)
		}
	}
}
