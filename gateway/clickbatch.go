package gateway

import (
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/pushfleet/pushfleet/clicks"
)

// reportLineBytes is more than a line of a batch of reports has: the longest token, the longest
// event, and their names.
const reportLineBytes = 720

// batchShare is the part of the reports under way that batches of them may be, and
// mostReportBatches the most that are: whoever is slow with their bodies, for which nobody needs
// a key, holds memory that all batches share.
const batchShare, mostReportBatches = 8, 8

// reportLine is a line of a batch of reports.
type reportLine struct {
	number  int
	event   clicks.Event
	claim   *clickClaim
	problem *Problem // nil = it is durable
}

// reportMany answers POST /v1/events/batch: 200 if all reports are durable, else 207. Each is
// taken by itself, as report does it.
func (g *Gateway) reportMany(w http.ResponseWriter, r *http.Request) *Problem {
	if g.o.Clicks == nil {
		return noClicks()
	}
	select {
	case g.intake.batches <- struct{}{}:
		defer func() { <-g.intake.batches }()
	default:
		return newProblem(codeBusy, "so many batches of reports are under way that this one was not read").after(1)
	}
	all, problem := g.readReports(r)
	if problem != nil {
		return problem
	}
	// All of them take no longer than one does whose stores are slow.
	ctx, cancel := context.WithTimeout(r.Context(), max(g.o.Times.Confirm, g.o.Times.Status))
	defer cancel()
	var noting sync.WaitGroup
	places := make(chan struct{}, looksAtOnce)
	for i := range all {
		one := &all[i]
		if one.problem != nil {
			continue
		}
		places <- struct{}{}
		noting.Go(func() {
			defer func() { <-places }()
			one.problem = g.note(ctx, one.event, one.claim)
		})
	}
	noting.Wait()
	g.answerReports(w, all)
	return nil
}

// readReports reads the lines of a batch. Its body is not needed any more then.
func (g *Gateway) readReports(r *http.Request) ([]reportLine, *Problem) {
	body, problem := g.readBody(r, "application/x-ndjson", min(g.o.Limits.Batch, g.o.Limits.Lines*reportLineBytes), ofMany)
	if problem != nil {
		return nil, problem
	}
	defer g.bodies.give(body)
	lines, problem := g.lines(body.text)
	if problem != nil {
		return nil, problem
	}
	all := make([]reportLine, len(lines))
	for i, l := range lines {
		one, q := &all[i], reportRequest{}
		if one.number, one.problem = l.number, parseObject(l.text, &q, reportFields); one.problem == nil {
			one.event, one.claim, one.problem = g.claimed(&q)
		}
	}
	return all, nil
}

// notedLine is a line that is durable, and failedReport one that is not.
type notedLine struct {
	Line  int    `json:"line"`
	Event string `json:"event"`
}

type failedReport struct {
	Line    int      `json:"line"`
	Problem *Problem `json:"problem"`
}

// answerReports counts the lines, and answers with a result for each, in their order.
func (g *Gateway) answerReports(w http.ResponseWriter, all []reportLine) {
	failed, again, status := 0, 0, http.StatusOK
	results := make([]any, len(all))
	for i := range all {
		one := &all[i]
		g.o.Metrics.reported(one.event, one.problem)
		if one.problem == nil {
			results[i] = notedLine{one.number, one.event.String()}
			continue
		}
		failed, again, status = failed+1, max(again, one.problem.RetryAfter), http.StatusMultiStatus
		results[i] = failedReport{one.number, one.problem}
	}
	if again > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(again))
	}
	answer(w, status, "application/json", struct {
		Accepted int   `json:"accepted"`
		Failed   int   `json:"failed"`
		Results  []any `json:"results"`
	}{len(all) - failed, failed, results})
}
