package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
)

// sendBatch answers POST /v1/messages/batch: 202 if all were accepted, else 207.
func (g *Gateway) sendBatch(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	if len(r.Header["Idempotency-Key"]) > 0 {
		return newProblem(codeBadHeader, "a batch has no Idempotency-Key: give each line an id")
	}
	select {
	case g.batches <- struct{}{}:
		defer func() { <-g.batches }()
	default:
		return newProblem(codeBusy, "so many batches are under way that this one was not read").after(1)
	}
	s := g.many.Get().(*sending)
	s.caller, s.haveIDs, s.now = c, true, clock()
	if problem := g.readLines(r, s); problem != nil {
		s.reuse(&g.many)
		return problem
	}
	g.recall(r.Context(), s) // first: what was accepted before stands, wherever it is in the batch
	g.pair(s)
	g.produce(r.Context(), s)
	g.settleTwins(s)
	tellLimits(w.Header(), s.standings)
	g.answerBatch(w, s)
	s.reuse(&g.many)
	return nil
}

// readLines reads the messages of a batch. Its body is not needed any more then.
func (g *Gateway) readLines(r *http.Request, s *sending) *Problem {
	body, problem := g.readBody(r, "application/x-ndjson", g.o.Limits.Batch, ofMany)
	if problem != nil {
		return problem
	}
	defer g.bodies.give(body)
	lines, problem := g.lines(body.text)
	if problem != nil {
		return problem
	}
	trace := traceparent(r.Header)
	for _, l := range lines {
		e := s.add(l.number)
		if e.problem = g.accept(&s.check, l.text, &e.message); e.problem != nil {
			g.o.Metrics.refused(e.problem.Code)
		}
		e.record.Traceparent = trace
	}
	return nil
}

// failedLine is a line that was not accepted.
type failedLine struct {
	Line    int      `json:"line"`
	ID      string   `json:"id,omitempty"`
	Problem *Problem `json:"problem"`
}

// answerBatch answers with a result for each line, in their order.
func (g *Gateway) answerBatch(w http.ResponseWriter, s *sending) {
	failed, again, status := 0, 0, http.StatusAccepted
	for _, e := range s.entries {
		if e.problem != nil {
			failed, again, status = failed+1, max(again, e.problem.RetryAfter), http.StatusMultiStatus
		}
	}
	out := strconv.AppendInt(append(s.text, `{"accepted":`...), int64(len(s.entries)-failed), 10)
	out = strconv.AppendInt(append(out, `,"failed":`...), int64(failed), 10)
	out = append(out, `,"results":[`...)
	for i, e := range s.entries {
		if i > 0 {
			out = append(out, ',')
		}
		if e.problem == nil {
			out = g.appendAccepted(out, s, e)
			continue
		}
		id := e.problem.ID
		e.problem.ID = "" // it stands beside it
		out = appendJSON(out, &failedLine{Line: e.line, ID: id, Problem: e.problem})
	}
	s.text = append(out, "]}\n"...)
	if again > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(again))
	}
	if !answerText(w, status, s.text) {
		s.text = nil // HTTP/2 may be writing it still
	}
}

// line is one message of a batch; lines are counted from 1.
type line struct {
	number int
	text   []byte
}

// lines cuts a batch. Blank lines are none, but count.
func (g *Gateway) lines(body []byte) ([]line, *Problem) {
	lines := make([]line, 0, min(g.o.Limits.Lines, 1+bytes.Count(body, []byte{'\n'})))
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
