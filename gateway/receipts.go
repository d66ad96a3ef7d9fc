package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// receipt answers GET /v1/receipts/{receipt}.
func (g *Gateway) receipt(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	found, problem := g.lookUp(r.Context(), c, []string{r.PathValue("receipt")})
	if problem != nil {
		return problem
	}
	f := found[0]
	if f.problem != nil {
		return f.problem
	}
	if f.report.next > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.report.next))
	}
	answer(w, http.StatusOK, "application/json", f.report)
	return nil
}

// question is the body of a query.
type question struct {
	Receipts []string `json:"receipts"`
}

// queryAnswer is the answer: one for each receipt, in their order.
type queryAnswer struct {
	Results []any `json:"results"` // each a *Report or an *unanswered
}

// unanswered is a receipt without an answer.
type unanswered struct {
	Receipt string   `json:"receipt"`
	Problem *Problem `json:"problem"`
}

// readQuestion reads the body of a query, which is not needed any more then.
func (g *Gateway) readQuestion(r *http.Request) (*question, *Problem) {
	body, problem := g.readBody(r, "application/json", g.o.Limits.queryBytes(), ofMany)
	if problem != nil {
		return nil, problem
	}
	defer g.bodies.give(body)
	var q question
	dec := json.NewDecoder(bytes.NewReader(body.text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&q)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	switch {
	case err != nil:
		return nil, newProblem(codeBadRequest, `want {"receipts": ["…"]}`)
	case len(q.Receipts) == 0:
		return nil, newProblem(codeBadRequest, "no receipts are asked for").at("/receipts")
	case len(q.Receipts) > g.o.Limits.Query:
		return nil, newProblem(codeTooManyLines, fmt.Sprintf("a query has at most %d receipts", g.o.Limits.Query)).at("/receipts")
	}
	return &q, nil
}

// query answers POST /v1/receipts:query.
func (g *Gateway) query(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	select {
	case g.queries <- struct{}{}:
		defer func() { <-g.queries }()
	default:
		return newProblem(codeBusy, "so many queries are under way that this one was not read").after(1)
	}
	q, problem := g.readQuestion(r)
	if problem != nil {
		return problem
	}
	found, problem := g.lookUp(r.Context(), c, q.Receipts)
	if problem != nil {
		return problem
	}
	a, next := queryAnswer{Results: make([]any, len(found))}, 0
	for i, f := range found {
		if f.problem != nil {
			a.Results[i] = &unanswered{q.Receipts[i], f.problem}
			continue
		}
		a.Results[i] = f.report
		if f.report.next > 0 && (next == 0 || f.report.next < next) {
			next = f.report.next
		}
	}
	if next > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(next))
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}
