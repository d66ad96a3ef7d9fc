package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// theirMessage is a message to a topic in an answer: what it says is the receivers' alone.
type theirMessage struct {
	ID         string    `json:"id"`
	Sender     string    `json:"sender"`
	AcceptedAt time.Time `json:"accepted_at"`
	ExpiresAt  time.Time `json:"expires_at"`
}

type theirMessages struct {
	Messages []theirMessage `json:"messages"`
	Next     string         `json:"next,omitempty"` // for after; "" = there are no more
}

// listMessages answers GET /v1/topics/{topic}/messages: those of the caller's sender that have
// begun, and with the right admin those of all, of as many days as is kept what became of
// them, which is 31 at most, the newest first.
func (g *Gateway) listMessages(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	if g.o.Fanouts == nil {
		return noFanouts()
	}
	q, problem := pageOf(r, "after", "limit")
	if problem != nil {
		return problem
	}
	now := clock()
	before, ok := messagePlace(q.after, now)
	if !ok {
		return badPage("after: want the next of the page before")
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	t, problem := g.topic(ctx, r.PathValue("topic"), c, c.has)
	if problem != nil {
		return problem
	}
	a, problem := g.messagesOf(ctx, t, c, before, q.limit, now)
	if problem != nil {
		return problem
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

// messagesOf are those of a topic that are told to a caller, before a place: of so many, his own.
func (g *Gateway) messagesOf(ctx context.Context, t *subscriptions.Topic, c *Caller, before fanout.Place, limit int, now time.Time) (*theirMessages, *Problem) {
	oldest := now.Add(-min(g.o.Times.Kept, fanout.Kept))
	list, err := g.o.Fanouts.Records.Messages(ctx, t.App, fanout.To{Kind: fanout.OfTopic, Name: t.Name}, before, oldest, limit+1)
	if err != nil {
		g.o.Log.Warn("the messages of a topic cannot be read", "error", err)
		return nil, newProblem(codeStatusAway, "Cassandra does not say which messages the topic got").after(2)
	}
	a := &theirMessages{Messages: []theirMessage{}}
	for i := range list[:min(limit, len(list))] {
		if l := &list[i]; l.Sender == c.Sender || c.may(Admin) {
			a.Messages = append(a.Messages, theirMessage{l.Message.String(), l.Sender, l.Accepted.UTC(), l.Expires.UTC()})
		}
	}
	if len(list) > limit { // either may be another sender's, whose ids are not told
		a.Next = messagePlaceText(fanout.Before(&list[limit], &list[limit-1]))
	}
	return a, nil
}

// A place among messages is told as base64url of when the message was accepted, in ms in
// eight bytes, and its id.

func messagePlaceText(p fanout.Place) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(p.At.UnixMilli())), p.Message[:]...))
}

// messagePlace reads one; of no text it is before all that may have been accepted by now,
// by any gateway's clock. What is later than that is refused, as it is nobody's.
func messagePlace(text string, now time.Time) (p fanout.Place, ok bool) {
	newest := now.Add(time.Hour)
	if text == "" {
		return fanout.Place{At: newest}, true
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") || len(b) != 8+16 {
		return p, false
	}
	ms := binary.BigEndian.Uint64(b)
	if ms > uint64(newest.UnixMilli()) {
		return p, false
	}
	return fanout.Place{At: time.UnixMilli(int64(ms)).UTC(), Message: uuid.UUID(b[8:])}, true
}
