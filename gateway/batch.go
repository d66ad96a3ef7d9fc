package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// batchAnswer is the answer to a batch: a result for each line, in their order.
type batchAnswer struct {
	Accepted int   `json:"accepted"`
	Failed   int   `json:"failed"`
	Results  []any `json:"results"` // each an *accepted or a *failedLine
}

// failedLine is a line that was not accepted.
type failedLine struct {
	Line    int      `json:"line"`
	ID      string   `json:"id,omitempty"`
	Problem *Problem `json:"problem"`
}

// sendBatch answers POST /v1/messages/batch: 202 if all were accepted, else 207.
func (g *Gateway) sendBatch(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	now := clock()
	if len(r.Header.Values("Idempotency-Key")) > 0 {
		return newProblem(codeBadHeader, "a batch has no Idempotency-Key: give each line an id")
	}
	select {
	case g.batches <- struct{}{}:
		defer func() { <-g.batches }()
	default:
		return newProblem(codeBusy, "so many batches are under way that this one was not read").after(1)
	}
	a, lines, ms, problem := g.readLines(r, c, now)
	if problem != nil {
		return problem
	}
	var at []int // of the messages in the results
	for i := range lines {
		if a.Results[i] == nil {
			at = append(at, i)
		}
	}
	for k, result := range g.produce(r.Context(), c, ms) {
		i := at[k]
		if result.problem != nil {
			a.fail(i, lines[i].number, result.problem)
			continue
		}
		result.accepted.Line = lines[i].number
		a.Results[i] = result.accepted
		a.Accepted++
	}
	a.write(w)
	return nil
}

// readLines reads the messages of a batch, and fails those that are refused. The body is
// not needed any more then.
func (g *Gateway) readLines(r *http.Request, c *Caller, now time.Time) (*batchAnswer, []line, []*message, *Problem) {
	body, problem := g.readBody(r, "application/x-ndjson", g.o.Limits.Batch, ofMany)
	if problem != nil {
		return nil, nil, nil, problem
	}
	defer g.bodies.give(body)
	lines, problem := g.lines(body.text)
	if problem != nil {
		return nil, nil, nil, problem
	}
	a := &batchAnswer{Results: make([]any, len(lines))}
	var ms []*message
	trace := traceparent(r.Header)
	for i, l := range lines {
		m, problem := g.accept(c, l.text, "", true, now)
		if problem != nil {
			g.o.Metrics.refused(problem.Code)
			a.fail(i, l.number, problem)
			continue
		}
		m.record.Traceparent = trace
		ms = append(ms, m)
	}
	return a, lines, ms, nil
}

func (a *batchAnswer) fail(i, number int, p *Problem) {
	id := p.ID
	p.ID = "" // it stands beside it
	a.Results[i] = &failedLine{Line: number, ID: id, Problem: p}
	a.Failed++
}

func (a *batchAnswer) write(w http.ResponseWriter) {
	status := http.StatusAccepted
	if a.Failed > 0 {
		status = http.StatusMultiStatus
	}
	again := 0
	for _, r := range a.Results {
		if failed, is := r.(*failedLine); is {
			again = max(again, failed.Problem.RetryAfter)
		}
	}
	if again > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(again))
	}
	answer(w, status, "application/json", a)
}

// line is one message of a batch; lines are counted from 1.
type line struct {
	number int
	text   []byte
}

// lines cuts a batch. Blank lines are none, but count.
func (g *Gateway) lines(body []byte) ([]line, *Problem) {
	var lines []line
	number := 0
	for text := range bytes.SplitSeq(body, []byte{'\n'}) {
		number++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if len(lines) == g.o.Limits.Lines {
			return nil, newProblem(codeTooManyLines, fmt.Sprintf("a batch has at most %d lines; nothing of it was sent", g.o.Limits.Lines))
		}
		lines = append(lines, line{number, text})
	}
	if len(lines) == 0 {
		return nil, newProblem(codeBadRequest, "the batch has no line")
	}
	return lines, nil
}

func tooLarge(most int) string { return fmt.Sprintf("the body is over %d bytes", most) }
