package gateway

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// accepted is the answer to a message that Kafka has.
type accepted struct {
	Line        int       `json:"line,omitempty"` // of a batch
	ID          string    `json:"id"`
	Receipt     string    `json:"receipt"`
	Status      string    `json:"status"`
	Mode        Mode      `json:"mode"`
	ServiceType string    `json:"service_type"`
	Lane        string    `json:"lane"`
	AcceptedAt  time.Time `json:"accepted_at"`
}

// send answers POST /v1/messages.
func (g *Gateway) send(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	now := clock()
	key, problem := idempotencyKey(r.Header)
	if problem != nil {
		return problem
	}
	m, problem := g.readMessage(r, c, key, now)
	if problem != nil {
		return problem
	}
	m.record.Traceparent = traceparent(r.Header)
	results := g.produce(r.Context(), c, []*message{m})
	if results[0].problem != nil {
		return results[0].problem
	}
	answer(w, http.StatusAccepted, "application/json", results[0].accepted)
	return nil
}

// readMessage reads a message. Its body is not needed any more then.
func (g *Gateway) readMessage(r *http.Request, c *Caller, key string, now time.Time) (*message, *Problem) {
	body, problem := g.readBody(r, "application/json", g.o.Limits.Message, ofMessage)
	if problem != nil {
		return nil, problem
	}
	defer g.bodies.give(body)
	m, problem := g.accept(c, body.text, key, false, now)
	if problem != nil {
		g.o.Metrics.refused(problem.Code)
	}
	return m, problem
}

// clock is the time in milliseconds, which is what records, ids and receipts have.
func clock() time.Time { return time.UnixMilli(time.Now().UnixMilli()).UTC() }

// result is what became of a message that was produced: one of the two.
type result struct {
	accepted *accepted
	problem  *Problem
}

// confirmation is what the producer said of one message.
type confirmation struct {
	i     int
	place Place
	err   error
}

// produce hands the messages to Kafka and waits until each is confirmed, or it is too
// late. A request that ends early changes nothing: what was handed over is written.
func (g *Gateway) produce(ctx context.Context, c *Caller, ms []*message) []result {
	deadline := time.NewTimer(g.o.Times.Confirm)
	defer deadline.Stop()
	topics := g.topics(ctx, ms)
	// Room for all: a confirmation never waits for us.
	confirmed := make(chan confirmation, len(ms))
	for i, m := range ms {
		g.o.Producer.Produce(m.record, func(at Place, err error) { confirmed <- confirmation{i, at, err} })
	}
	results := make([]result, len(ms))
	late := false
	for range ms {
		select {
		case got := <-confirmed:
			results[got.i] = g.confirmed(c, ms[got.i], topics[ms[got.i].lane], got)
			continue
		case <-deadline.C:
			late = true
		case <-ctx.Done(): // nobody waits for the answer
			late = true
		}
		break
	}
	if late {
		for i, m := range ms {
			if results[i] == (result{}) {
				results[i] = g.unconfirmed(m)
			}
		}
	}
	return results
}

// topics are the ids of the topics that the messages go to. They are known before
// anything is produced, for receipts of records that nobody waits for any more are of no
// use; without an answer a receipt does without.
func (g *Gateway) topics(ctx context.Context, ms []*message) map[*Lane][16]byte {
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Confirm/2)
	defer cancel()
	topics := make(map[*Lane][16]byte, 1)
	for _, m := range ms {
		if _, asked := topics[m.lane]; !asked {
			topics[m.lane] = g.progress.topicOf(ctx, m.lane.Name)
		}
	}
	return topics
}

// confirmed is the result of what the producer said.
func (g *Gateway) confirmed(c *Caller, m *message, topic [16]byte, got confirmation) result {
	switch {
	case errors.Is(got.err, ErrBufferFull):
		g.o.Metrics.sent(m.lane.Name, "buffer_full")
		return result{problem: newProblem(codeBufferFull, "so many messages wait for Kafka that this one was not taken: send it again").of(m.id).after(1)}
	case got.err != nil:
		g.o.Log.Warn("Kafka did not take a message", "lane", m.lane.Name, "error", got.err)
		return g.unconfirmed(m)
	}
	g.o.Metrics.sent(m.lane.Name, "accepted")
	cl := claim{id: m.id, mode: m.lane.Mode, lane: m.lane.Name, service: m.lane.ServiceType, app: m.app, owner: m.owner,
		topic: topic, place: got.place, at: m.record.At}
	return result{accepted: &accepted{ID: m.id, Receipt: g.o.Signer.sign(c.Sender, &cl), Status: statusPending, Mode: m.lane.Mode,
		ServiceType: m.lane.ServiceType, Lane: m.lane.Name, AcceptedAt: m.record.At}}
}

func (g *Gateway) unconfirmed(m *message) result {
	g.o.Metrics.sent(m.lane.Name, "unconfirmed")
	return result{problem: newProblem(codeUnconfirmed, "Kafka did not confirm it in time. It may have been accepted: send it again with this id, and it is pushed once").of(m.id).after(2)}
}

// maxIdempotencyKey is the longest Idempotency-Key, in characters.
const maxIdempotencyKey = 64

// idempotencyKey reads the header: bare, as everybody sends it, or as the quoted string
// that draft-ietf-httpapi-idempotency-key-header asks for.
func idempotencyKey(h http.Header) (string, *Problem) {
	values := h.Values("Idempotency-Key")
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
	if values := h.Values("Traceparent"); len(values) == 1 && traceparents.MatchString(values[0]) {
		return values[0]
	}
	return ""
}
