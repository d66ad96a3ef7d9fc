// Package grafanatest asks Prometheus' own tool what the dashboards show of a fleet.
package grafanatest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pushfleet/pushfleet/deploy/grafana"
)

// ErrNoTool says that promtool is not on the PATH.
var ErrNoTool = errors.New("promtool is not on the PATH: run make test, or deploy/local/fetch.sh --tests, which puts it into servers/promtool of the cache")

// Scrape is what one process told: samples by their name with labels, as they are written
// in /metrics.
type Scrape struct {
	Instance string
	Samples  map[string]float64
}

type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type sample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

type query struct {
	Expr    string   `json:"expr"`
	At      string   `json:"eval_time"`
	Samples []sample `json:"exp_samples"`
}

type group struct {
	Interval string   `json:"interval"`
	Series   []series `json:"input_series"`
	Queries  []query  `json:"promql_expr_test"`
}

// Check has promtool ask all queries of these dashboards of what these processes told, as if
// counters had grown since. Each must have an answer, but for those of panels that a healthy
// fleet leaves empty: they must only be queries. dir takes a file. With an error comes
// what promtool said.
func Check(dir string, dashboards []grafana.Dashboard, scrapes []Scrape) error {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		return ErrNoTool
	}
	g := group{Interval: "15s"}
	for _, s := range scrapes {
		for name, value := range s.Samples {
			g.Series = append(g.Series, series{labelled(name, s.Instance), values(name, value)})
		}
	}
	for _, d := range dashboards {
		for _, p := range d.Panels {
			for _, q := range p.Queries {
				g.Queries = append(g.Queries, query{asked(&d, q.Expr, p.Seldom), "10m", []sample{{"{}", 1}}})
			}
		}
	}
	text, err := json.Marshal(map[string]any{"evaluation_interval": "15s", "tests": []group{g}})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "dashboards_test.yaml")
	// JSON is YAML, too.
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(tool, "test", "rules", file).CombinedOutput(); err != nil {
		return fmt.Errorf("what dashboards show: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// asked is a query that has one answer, 1, if expr has any.
func asked(d *grafana.Dashboard, expr string, seldom bool) string {
	expr = strings.ReplaceAll(expr, "$__rate_interval", "1m")
	for _, v := range d.Ask {
		expr = strings.ReplaceAll(expr, `"$`+v.Label+`"`, `".*"`)
	}
	if seldom {
		return fmt.Sprintf("count(%s) >= bool 0 or vector(1)", expr)
	}
	return fmt.Sprintf("count(%s) > bool 0", expr)
}

// labelled is a series' name with the label that Prometheus adds.
func labelled(name, instance string) string {
	label := "instance=" + strconv.Quote(instance)
	if open, ok := strings.CutSuffix(name, "}"); ok {
		return open + "," + label + "}"
	}
	return name + "{" + label + "}"
}

// values are ten minutes of a series: what is counted grows, so that all that is a rate has
// one.
func values(name string, value float64) string {
	metric, _, _ := strings.Cut(name, "{")
	for _, suffix := range []string{"_total", "_bucket", "_count", "_sum"} {
		if strings.HasSuffix(metric, suffix) {
			return "0+1x40"
		}
	}
	return strings.ReplaceAll(strconv.FormatFloat(value, 'f', -1, 64), "+Inf", "inf") + "x40"
}
