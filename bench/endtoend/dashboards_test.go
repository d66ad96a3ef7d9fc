//go:build unix

package endtoend

import (
	"errors"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/deploy/grafana"
	"github.com/pushfleet/pushfleet/deploy/grafana/grafanatest"
)

// dashboardsShow checks that each panel of these dashboards for Grafana shows something of
// what these processes tell.
func (w *world) dashboardsShow(dashboards []grafana.Dashboard, processes ...*fleet.Process) {
	w.t.Helper()
	var scrapes []grafanatest.Scrape
	for _, p := range processes {
		m, err := p.Metrics(waiting(w.t))
		check(w.t, err)
		scrapes = append(scrapes, grafanatest.Scrape{Instance: p.Name, Samples: m})
	}
	err := grafanatest.Check(w.t.TempDir(), dashboards, scrapes)
	if errors.Is(err, grafanatest.ErrNoTool) {
		w.t.Log("NOT TESTED: what dashboards show:", err)
		return
	}
	check(w.t, err)
	if grafanatest.Check(w.t.TempDir(), dashboards, scrapes[1:]) == nil {
		w.t.Error("without the first process's metrics the dashboards show as much: the check sees nothing")
	}
}
