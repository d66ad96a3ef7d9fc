package gateway

import (
	"net/http"
	"slices"
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
	answerText(w, http.StatusOK, append(f.report.append(nil), '\n'))
	return nil
}

// unanswered is a receipt without an answer.
type unanswered struct {
	Receipt string   `json:"receipt"`
	Problem *Problem `json:"problem"`
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
	g.answerQuery(w, q.Receipts, found)
	return nil
}

const (
	// reportBytes is about what a report of a notification for one device takes.
	reportBytes = 768
	// mostText is the longest answer whose memory is used again, in bytes.
	mostText = 2 << 20
)

// answerQuery answers with a result for each receipt, in their order: a report or an unanswered.
func (g *Gateway) answerQuery(w http.ResponseWriter, receipts []string, found []found) {
	memory := g.texts.Get().(*[]byte)
	out, next := append(slices.Grow((*memory)[:0], reportBytes*len(found)), `{"results":[`...), 0
	for i, f := range found {
		if i > 0 {
			out = append(out, ',')
		}
		if f.problem != nil {
			out = appendJSON(out, &unanswered{receipts[i], f.problem})
			continue
		}
		out = f.report.append(out)
		if f.report.next > 0 && (next == 0 || f.report.next < next) {
			next = f.report.next
		}
	}
	if next > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(next))
	}
	out = append(out, "]}\n"...)
	if answerText(w, http.StatusOK, out) && cap(out) <= mostText { // unwritten, HTTP/2 may be at it still
		*memory = out
		g.texts.Put(memory)
	}
}
