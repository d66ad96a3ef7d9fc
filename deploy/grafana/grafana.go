// Package grafana is the dashboards that ship for Grafana: what they show is a table
// (fleet.go, lane.go, provider.go, limits.go, gateway.go), and the files that Grafana reads
// are made of it by `go generate ./deploy/grafana`. A test holds the files to the table, and
// each query to what a fleet tells.
package grafana

//go:generate go run ./generate .

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Dashboard is one page.
type Dashboard struct {
	Name   string // pushfleet-<Name>.json is its file, and pushfleet-<Name> its identity in Grafana
	Title  string
	About  string
	Ask    []Variable
	Panels []Panel
}

// Variable is something that whoever looks may choose: values of a label.
type Variable struct {
	Label  string // of Metric, and the variable's name
	Metric string
}

// Kind is how a panel shows its figures.
type Kind string

// The kinds.
const (
	Figure Kind = "stat"
	Lines  Kind = "timeseries"
	Rows   Kind = "table"
)

// Units, as Grafana names them.
const (
	plain   = "short"
	perSec  = "cps"
	seconds = "s"
	octets  = "bytes"
	share   = "percentunit"
)

// Panel is one picture.
type Panel struct {
	Title   string
	About   string
	Kind    Kind
	Unit    string
	Queries []Query
	// Seldom says that a healthy fleet may have none of these series.
	Seldom bool
}

// Query is an expression of Prometheus' and what its series are called; {{label}} is
// replaced by Grafana.
type Query struct {
	Expr, Name string
}

// Dashboards returns all of them, in the order of their names in Grafana.
func Dashboards() []Dashboard { return append(OfWorkers(), OfGateways()...) }

// OfWorkers returns those that show what workers and registries tell.
func OfWorkers() []Dashboard { return []Dashboard{fleet(), lane(), provider(), limits()} }

// OfGateways returns those that show what gateways and processes of fan-outs tell.
func OfGateways() []Dashboard { return []Dashboard{gateway()} }

// File is the name of a dashboard's file.
func (d *Dashboard) File() string { return "pushfleet-" + d.Name + ".json" }

const (
	columns = 24 // of Grafana's grid
	figures = 4  // the width of a Figure
	wide    = columns / 2
	low     = 4 // the heights of a Figure and of all others
	high    = 8
	// schema is the version of Grafana's format, that of its release 11; later ones read
	// it.
	schema = 39
)

// source is the data source: Grafana asks for it when a dashboard is imported.
var source = object{"type": "prometheus", "uid": "${source}"}

type object = map[string]any

// JSON is a dashboard as Grafana reads it.
func (d *Dashboard) JSON() ([]byte, error) {
	variables := []object{{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for _, v := range d.Ask {
		query := fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Label)
		variables = append(variables, object{"name": v.Label, "label": v.Label, "type": "query", "datasource": source, "definition": query,
			"query": object{"query": query, "refId": "values"}, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"text": "All", "value": "$__all"}})
	}
	page := object{"uid": "pushfleet-" + d.Name, "title": "pushfleet: " + d.Title, "description": d.About, "tags": []string{"pushfleet"}, "schemaVersion": schema,
		"editable": true, "refresh": "10s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
		"links":      []object{{"type": "dashboards", "tags": []string{"pushfleet"}, "title": "pushfleet", "asDropdown": true, "keepTime": true, "includeVars": true}},
		"templating": object{"list": variables}, "panels": d.placed()}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(page); err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.Name, err)
	}
	return text.Bytes(), nil
}

// placed are the panels in their places: figures side by side, the others two in a row.
func (d *Dashboard) placed() []object {
	var placed []object
	x, y, height := 0, 0, 0
	for i := range d.Panels {
		p := &d.Panels[i]
		w, h := wide, high
		if p.Kind == Figure {
			w, h = figures, low
		}
		if x+w > columns || height != 0 && h != height {
			x, y = 0, y+height
		}
		o := p.object(i + 1)
		o["gridPos"] = object{"x": x, "y": y, "w": w, "h": h}
		placed = append(placed, o)
		x, height = x+w, h
	}
	return placed
}

func (p *Panel) object(id int) object {
	var targets []object
	for i, q := range p.Queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Name}
		if p.Kind != Lines {
			t["instant"] = true
		}
		if p.Kind == Rows {
			t["format"] = "table"
		}
		targets = append(targets, t)
	}
	o := object{"id": id, "type": p.Kind, "title": p.Title, "description": p.About, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0}, "overrides": []object{}}}
	switch p.Kind {
	case Figure:
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "graphMode": "none", "colorMode": "none", "textMode": "auto"}
	case Lines:
		o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case Rows:
		o["options"] = object{"showHeader": true}
		o["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true}}}}
	}
	return o
}
