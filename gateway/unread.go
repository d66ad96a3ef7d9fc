package gateway

import (
	"context"
	"net/http"
	"net/url"
)

// unreadAnswer is how much of an inbox is not read.
type unreadAnswer struct {
	UserID string `json:"user_id"`
	App    string `json:"app"`
	Unread int    `json:"unread"` // up to inbox.MostUnread
	More   bool   `json:"more"`   // there may be others
}

// unread answers GET /v1/users/{user}/inbox/unread. Limits and preferences are not asked, as
// nothing is shown.
func (g *Gateway) unread(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query) > 1 || len(query["app"]) != len(query) {
		return badPage("want a query of app, once")
	}
	k, problem := g.inboxKey(v, query.Get("app"))
	if problem != nil {
		return problem
	}
	topics, problem := g.follow(r.Context(), k)
	if problem != nil {
		return problem
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	n, more, err := g.o.Inbox.Store.Unread(ctx, k, topics.list)
	if err != nil {
		return g.inboxAway(err)
	}
	answer(w, http.StatusOK, "application/json", unreadAnswer{k.User, k.App, n, more})
	return nil
}
