package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// question is the body of a query.
type question struct {
	Receipts []string `json:"receipts"`
}

// readQuestion reads the body of a query, which is not needed any more then.
func (g *Gateway) readQuestion(r *http.Request) (*question, *Problem) {
	body, problem := g.readBody(r, "application/json", g.o.Limits.queryBytes(), ofMany)
	if problem != nil {
		return nil, problem
	}
	defer g.bodies.give(body)
	var q question
	if q.Receipts = plainReceipts(body.text); q.Receipts == nil {
		if problem := q.read(body.text); problem != nil {
			return nil, problem
		}
	}
	switch {
	case len(q.Receipts) == 0:
		return nil, newProblem(codeBadRequest, "no receipts are asked for").at("/receipts")
	case len(q.Receipts) > g.o.Limits.Query:
		return nil, newProblem(codeTooManyLines, fmt.Sprintf("a query has at most %d receipts", g.o.Limits.Query)).at("/receipts")
	}
	return &q, nil
}

var questionFields = []string{"receipts"}

// read reads any body.
func (q *question) read(text []byte) *Problem {
	var form struct {
		Receipts []*string `json:"receipts"`
	}
	problem := parseObject(text, &form, questionFields)
	if problem != nil && problem.Code == codeBadRequest {
		return problem
	}
	if problem != nil || slices.Contains(form.Receipts, nil) {
		return newProblem(codeBadRequest, `want {"receipts": ["…"]}`)
	}
	q.Receipts = make([]string, len(form.Receipts))
	for i, receipt := range form.Receipts {
		q.Receipts[i] = *receipt
	}
	return nil
}

// manyReceipts is how many receipts memory is made for before they are read.
const manyReceipts = 1000

// plainReceipts reads a body as nearly all are, {"receipts":["…","…"]}, of characters that stand for
// themselves. nil = it is another one, or none.
func plainReceipts(body []byte) []string {
	text := string(body) // once for all
	i := 0
	next := func(want string) bool { // after blanks
		for i < len(text) && blank(text[i]) {
			i++
		}
		if !strings.HasPrefix(text[i:], want) {
			return false
		}
		i += len(want)
		return true
	}
	if !next("{") || !next(`"receipts"`) || !next(":") || !next("[") {
		return nil
	}
	all := make([]string, 0, min(strings.Count(text, `"`)/2, manyReceipts))
	for {
		if !next(`"`) {
			return nil
		}
		n := strings.IndexByte(text[i:], '"')
		if n < 0 || !verbatim(text[i:i+n]) {
			return nil
		}
		all = append(all, text[i:i+n])
		i += n + 1
		if !next(",") {
			break
		}
	}
	if !next("]") || !next("}") || !next("") || i < len(text) {
		return nil
	}
	return all
}
