package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// Pages of lists.
const (
	usualPage = 100
	mostPage  = 1000
	// mostReads is how many pages are read for one answer: of a topic that nearly all have
	// left, or of a user with topics of other apps, an answer may be short and not the last.
	mostReads = 8
)

// page is which part of a list is wanted.
type page struct {
	after string
	limit int
	left  bool // also subscriptions that have ended
}

func badPage(fault string) *Problem { return newProblem(codeBadRequest, fault) }

// pageOf reads the query of a request, in which only these names may stand, each once.
func pageOf(r *http.Request, names ...string) (page, *Problem) {
	p := page{limit: usualPage}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return p, badPage("the query cannot be read")
	}
	for name, values := range query {
		if !slices.Contains(names, name) || len(values) != 1 {
			return p, badPage("want a query of " + strings.Join(names, ", ") + ", each once")
		}
	}
	p.after = query.Get("after")
	if query.Has("limit") {
		n, err := strconv.Atoi(query.Get("limit"))
		if err != nil || n < 1 || n > mostPage {
			return p, badPage("limit: want 1 to " + strconv.Itoa(mostPage))
		}
		p.limit = n
	}
	switch left := query.Get("left"); {
	case left == "true":
		p.left = true
	case left != "false" && query.Has("left"):
		return p, badPage("left: want true or false")
	}
	return p, nil
}

// A place among subscribers is told as base64url of the slice, in two bytes, and the user.

func placeText(p subscriptions.Position) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint16(nil, uint16(p.Slice)), p.User...))
}

func placeOf(text string) (p subscriptions.Position, ok bool) {
	if text == "" {
		return p, true
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") || len(b) < 2 || len(b) > 2+subscriptions.MaxUser {
		return p, false
	}
	p = subscriptions.Position{Slice: int(binary.BigEndian.Uint16(b)), User: string(b[2:])}
	return p, p.Slice < subscriptions.Slices && utf8.ValidString(p.User)
}

// theirSubscriptions are subscriptions in an answer.
type theirSubscriptions struct {
	Subscriptions []theirSubscription `json:"subscriptions"`
	Next          string              `json:"next,omitempty"` // for after; "" = there are no more
}

// subscribers answers GET /v1/topics/{topic}/subscriptions, in an order of its own.
func (g *Gateway) subscribers(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	q, problem := pageOf(r, "after", "limit", "left")
	if problem != nil {
		return problem
	}
	place, ok := placeOf(q.after)
	if !ok {
		return badPage("after: want the next of the page before")
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	t, problem := g.topic(ctx, r.PathValue("topic"), c, c.has)
	if problem != nil {
		return problem
	}
	a := theirSubscriptions{Subscriptions: []theirSubscription{}}
	for range mostReads {
		list, next, end, err := g.o.Topics.Run(ctx, t.Name, t.Layout, 0, subscriptions.Slices-1, place, q.limit-len(a.Subscriptions))
		if err != nil {
			return g.topicsProblem(err)
		}
		for i := range list {
			if q.left || list[i].Mode != subscriptions.Left {
				a.Subscriptions = append(a.Subscriptions, ofSubscription(t.Name, &list[i]))
			}
		}
		place, a.Next = next, placeText(next)
		if end {
			a.Next = ""
		}
		if end || len(a.Subscriptions) == q.limit {
			break
		}
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

// topicsOfUser answers GET /v1/users/{user}/subscriptions, in the order of topics: those of
// the caller's apps, and for a user's token the open ones.
func (g *Gateway) topicsOfUser(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	q, problem := pageOf(r, "after", "limit", "left")
	if problem != nil {
		return problem
	}
	if q.after != "" && subscriptions.CheckName(q.after) != nil {
		return badPage("after: want the next of the page before")
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	a := theirSubscriptions{Subscriptions: []theirSubscription{}}
	after, end := q.after, false
	for reads := 0; reads < mostReads && !end && len(a.Subscriptions) < q.limit; reads++ {
		list, err := g.o.Topics.OfUser(ctx, v.user, after, mostPage)
		if err != nil {
			return g.topicsProblem(err)
		}
		end = len(list) < mostPage
		for i := range list {
			if len(a.Subscriptions) == q.limit {
				end = false
				break
			}
			m := &list[i]
			after = m.Topic
			if v.sees(m.Topic, m.App, m.Security) && (q.left || m.Mode != subscriptions.Left) {
				a.Subscriptions = append(a.Subscriptions, ofSubscription(m.Topic, &m.Subscription))
			}
		}
	}
	if !end {
		a.Next = after
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}
