package gateway

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// send answers POST /v1/messages.
func (g *Gateway) send(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	now := clock()
	key, problem := idempotencyKey(r.Header)
	if problem != nil {
		return problem
	}
	s := g.singles.Get().(*sending)
	s.caller, s.key, s.now = c, key, now
	e := s.add(0)
	if problem := g.readMessage(r, &s.check, &e.message); problem != nil {
		s.reuse(&g.singles)
		return problem
	}
	e.record.Traceparent = traceparent(r.Header)
	g.recall(r.Context(), s)
	g.produce(r.Context(), s)
	tellLimits(w.Header(), s.standings)
	return g.answerSingle(w, s, e)
}

// answerSingle answers for the one message of a request, which ends with it.
func (g *Gateway) answerSingle(w http.ResponseWriter, s *sending, e *entry) *Problem {
	problem := e.problem
	if problem == nil {
		if e.first != nil {
			w.Header().Set(headerReplayed, "true")
		}
		s.text = append(g.appendAccepted(s.text, s, e), '\n')
		if !answerText(w, http.StatusAccepted, s.text) {
			s.text = nil // HTTP/2 may be writing it still
		}
	}
	s.reuse(&g.singles)
	return problem
}

// headerReplayed says that the message was accepted before, and the receipt is its first.
const headerReplayed = "Idempotent-Replayed"

// readMessage reads a message. Its body is not needed any more then.
func (g *Gateway) readMessage(r *http.Request, k *check, m *message) *Problem {
	body, problem := g.readBody(r, "application/json", g.o.Limits.Message, ofMessage)
	if problem != nil {
		return problem
	}
	defer g.bodies.give(body)
	problem = g.accept(k, body.text, m)
	if problem != nil {
		g.o.Metrics.refused(problem.Code)
	}
	return problem
}

// appendAccepted appends the answer to a message that Kafka has.
func (g *Gateway) appendAccepted(out []byte, s *sending, e *entry) []byte {
	out = append(out, '{')
	if e.line > 0 {
		out = append(strconv.AppendInt(append(out, `"line":`...), int64(e.line), 10), ',')
	}
	out = appendQuoted(append(out, `"id":`...), e.id)
	out = append(out, `,"receipt":"`...)
	begin := len(out)
	c, says := s.claimOf(e, e.place), e.lane.says
	if e.first != nil {
		c, says = *e.first, saysOf(e.first)
	}
	out = g.o.Signer.sign(out, s.caller.Sender, &c)
	if verbatim(e.id) { // the rest is base64
		out = append(out, '"')
	} else {
		out = appendQuoted(out[:begin-1], string(out[begin:]))
	}
	out = c.at.AppendFormat(append(out, says...), time.RFC3339Nano)
	if e.first != nil {
		return append(out, `","replayed":true}`...)
	}
	return append(out, `"}`...)
}

// clock is the time in milliseconds, which is what records, ids and receipts have.
func clock() time.Time { return time.UnixMilli(time.Now().UnixMilli()).UTC() }

// maxIdempotencyKey is the longest Idempotency-Key, in characters.
const maxIdempotencyKey = 64

// idempotencyKey reads the header: bare, as everybody sends it, or as the quoted string
// that draft-ietf-httpapi-idempotency-key-header asks for.
func idempotencyKey(h http.Header) (string, *Problem) {
	values := h["Idempotency-Key"]
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = unquote(key[1 : len(key)-1])
	}
	if len(values) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", newProblem(codeBadHeader, "want one Idempotency-Key of 1 to 64 printable ASCII characters")
	}
	return key, nil
}

// unquote reads the inside of a string of RFC 9651; empty = it is none.
func unquote(inside string) string {
	var out strings.Builder
	for i := 0; i < len(inside); i++ {
		c := inside[i]
		if c == '\\' {
			if i++; i == len(inside) || inside[i] != '"' && inside[i] != '\\' {
				return ""
			}
			c = inside[i]
		} else if c == '"' {
			return ""
		}
		out.WriteByte(c)
	}
	return out.String()
}

var traceparents = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceparent passes on the caller's trace (W3C Trace Context), if it is one.
func traceparent(h http.Header) string {
	if values := h["Traceparent"]; len(values) == 1 && traceparents.MatchString(values[0]) {
		return values[0]
	}
	return ""
}
