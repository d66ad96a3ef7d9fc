package grafana

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/deploy/declaredtest"
)

// The files are what the tables say: nobody has changed one without the other.
func TestFilesAreCurrent(t *testing.T) {
	found, err := filepath.Glob("*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Dashboards() {
		want, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(d.File()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the tables say: go generate ./deploy/grafana (%v)", d.File(), err)
		}
		found = slices.DeleteFunc(found, func(name string) bool { return name == d.File() })
	}
	if len(found) > 0 {
		t.Errorf("%q are no dashboards any more", found)
	}
}

var (
	selectors = regexp.MustCompile(`(push_[a-z_]+)(?:\{([^}]*)\})?`)
	matchers  = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	groupings = regexp.MustCompile(`by \(([^)]*)\)`)
	names     = regexp.MustCompile(`\{\{(\w+)\}\}`)
	chosen    = regexp.MustCompile(`^\$(\w+)$`)
	word      = regexp.MustCompile(`^[a-z_-]+$|^[A-Z]+ /[a-z0-9/]+$`) // or a route
)

// Metrics, labels and their values in queries, and what names of series and variables
// speak of, stand in the code.
func TestQueriesNameWhatExists(t *testing.T) {
	metrics, literals := declaredtest.Read(t, filepath.Join("..", ".."))
	given := []string{"instance", "job", "le"} // by Prometheus, or by a histogram
	for _, d := range Dashboards() {
		var asked []string
		for _, v := range d.Ask {
			asked = append(asked, v.Label)
			if m, ok := metrics.Find(v.Metric); !ok || !slices.Contains(m.Labels, v.Label) {
				t.Errorf("%s: no code gives %s the label %s", d.Name, v.Metric, v.Label)
			}
		}
		for _, p := range d.Panels {
			for _, q := range p.Queries {
				at := d.Name + ", " + p.Title
				known := slices.Clone(given)
				for _, s := range selectors.FindAllStringSubmatch(q.Expr, -1) {
					m, ok := metrics.Find(s[1])
					if !ok {
						t.Errorf("%s: no code declares %s", at, s[1])
						continue
					}
					known = append(known, m.Labels...)
					for _, match := range matchers.FindAllStringSubmatch(s[2], -1) {
						if !slices.Contains(m.Labels, match[1]) {
							t.Errorf("%s: %s has the labels %q, not %s", at, s[1], m.Labels, match[1])
						}
						if v := chosen.FindStringSubmatch(match[3]); v != nil && (v[1] != match[1] || !slices.Contains(asked, v[1])) {
							t.Errorf("%s: nobody is asked for %s=%s", at, match[1], match[3])
						}
						for value := range strings.SplitSeq(match[3], "|") {
							if word.MatchString(value) && !literals[value] {
								t.Errorf("%s: nothing sets %s to %q", at, match[1], value)
							}
						}
					}
				}
				grouped := []string{"instance", "job"}
				for _, g := range groupings.FindAllStringSubmatch(q.Expr, -1) {
					for label := range strings.SplitSeq(g[1], ", ") {
						grouped = append(grouped, label)
						if !slices.Contains(known, label) {
							t.Errorf("%s: grouped by %s, which none of its metrics has", at, label)
						}
					}
				}
				for _, n := range names.FindAllStringSubmatch(q.Name, -1) {
					if !slices.Contains(grouped, n[1]) {
						t.Errorf("%s: its series are called by %s, which they do not have", at, n[1])
					}
				}
			}
		}
	}
}

// What gateways and fan-outs count is shown, all of it.
func TestGatewaysAreShownWhole(t *testing.T) {
	metrics, _ := declaredtest.Read(t, filepath.Join("..", ".."))
	shown := map[string]bool{}
	for _, d := range OfGateways() {
		for _, p := range d.Panels {
			for _, q := range p.Queries {
				for _, s := range selectors.FindAllStringSubmatch(q.Expr, -1) {
					shown[strings.TrimSuffix(s[1], "_bucket")] = true
				}
			}
		}
	}
	for name := range metrics {
		if (strings.HasPrefix(name, "push_gateway_") || strings.HasPrefix(name, "push_fanout_")) && !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// What Grafana needs to take a file, and what people need to read a page.
func TestPagesAreWhole(t *testing.T) {
	for _, d := range Dashboards() {
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			UID    string
			Panels []struct {
				ID      int
				GridPos struct{ X, Y, W, H int }
			}
		}
		if err := json.Unmarshal(text, &page); err != nil || page.UID == "" || len(page.Panels) != len(d.Panels) {
			t.Fatalf("%s: %+v, %v", d.Name, page, err)
		}
		taken, titles := map[[2]int]int{}, map[string]bool{}
		for i, p := range page.Panels {
			if p.ID != i+1 || p.GridPos.X+p.GridPos.W > columns || p.GridPos.W == 0 || p.GridPos.H == 0 {
				t.Errorf("%s: panel %+v", d.Name, p)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != 0 {
						t.Fatalf("%s: the panels %d and %d lie on each other", d.Name, other, p.ID)
					}
					taken[[2]int{x, y}] = p.ID
				}
			}
		}
		for _, p := range d.Panels {
			if p.Title == "" || titles[p.Title] || p.Unit == "" || len(p.Queries) == 0 {
				t.Errorf("%s: panel %q has no title of its own, no unit or no query", d.Name, p.Title)
			}
			titles[p.Title] = true
		}
	}
}
