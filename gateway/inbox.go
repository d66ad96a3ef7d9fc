package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
)

// Inboxes keep what users read when they look: inbox.Store, or inbox.Memory. It is safe
// for concurrent use.
type Inboxes interface {
	Page(ctx context.Context, k inbox.Key, follows []inbox.Follow, behind inbox.Position, limit int) (page []inbox.Entry, end bool, err error)
	Unread(ctx context.Context, k inbox.Key, follows []inbox.Follow) (n int, more bool, err error)
	Mark(ctx context.Context, k inbox.Key, m *inbox.Marks) error
	Show(ctx context.Context, k inbox.Key, shown []inbox.Position, at time.Time) error
}

// InboxLimits say what a user may be shown: the limits and preferences by which workers
// push. It is safe for concurrent use.
type InboxLimits interface {
	// Admit answers about entries that have not been shown, in their order. What it shows
	// is spent, once for each id, and what it withholds spends nothing.
	Admit(ctx context.Context, k inbox.Key, entries []inbox.Entry) ([]Admission, error)
}

// Admission says what becomes of an entry: it is shown, withheld, or with Hidden left out.
type Admission struct {
	Shown  bool
	Hidden bool      // its user wants nothing of the kind
	FreeAt time.Time // of what is withheld; zero = never
}

// Inbox is the side of a gateway that shows inboxes. Store and Watcher are required, and
// stay the caller's, who runs the Watcher; Limits may be nil: then all is shown.
type Inbox struct {
	Store   Inboxes
	Limits  InboxLimits
	Watcher *inbox.Watcher
}

// Bounds of an inbox's pages.
const (
	usualInbox  = 20
	longestWait = 30 // seconds
	// afterWait is how long a request that has waited may take for its answer.
	afterWait = 30 * time.Second
)

// inboxQuestion is what a request asks of an inbox.
type inboxQuestion struct {
	key    inbox.Key
	behind inbox.Position
	limit  int
	wait   time.Duration
	known  []string // tags of what the caller has; none = nothing
	whole  bool     // it is a client of the user who asks: what is confidential is shown to nobody else
}

// ofInbox lets those to the handler who may use the users' routes, where there are inboxes.
func (g *Gateway) ofInbox(h userHandler) http.Handler {
	return g.ofUser(func(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
		if g.o.Inbox == nil {
			return newProblem(codeNotConfigured, "this gateway has no inboxes")
		}
		return h(w, r, v)
	})
}

// inboxKey is the inbox that a visitor asks about.
func (g *Gateway) inboxKey(v *visitor, app string) (inbox.Key, *Problem) {
	app, problem := g.appOf(v, app)
	if problem != nil {
		return inbox.Key{}, problem
	}
	return inbox.Key{User: v.user, App: app}, nil
}

// appOf is the app that a visitor asks about: the token's, or one of the key's.
func (g *Gateway) appOf(v *visitor, app string) (string, *Problem) {
	if app == "" && v.pass != nil {
		app = v.pass.app
	}
	return app, g.ownApp(v, app)
}

func (g *Gateway) inboxQuestion(r *http.Request, v *visitor) (*inboxQuestion, *Problem) {
	query, problem := queryOf(r, "app", "after", "limit", "wait")
	if problem != nil {
		return nil, problem
	}
	q := &inboxQuestion{behind: inbox.Top(clock()), limit: usualInbox, known: tagsOf(r.Header), whole: v.pass != nil}
	if q.key, problem = g.inboxKey(v, query.Get("app")); problem != nil {
		return nil, problem
	}
	if q.limit, problem = number(query, "limit", q.limit, 1, inbox.MaxPage); problem != nil {
		return nil, problem
	}
	seconds, problem := number(query, "wait", 0, 0, longestWait)
	if problem != nil {
		return nil, problem
	}
	q.wait = time.Duration(seconds) * time.Second
	if query.Has("after") {
		if q.wait > 0 {
			return nil, badPage("wait: nothing new comes behind another entry; leave after out")
		}
		var ok bool
		if q.behind, ok = g.o.Signer.openCursor(q.key, query.Get("after")); !ok {
			return nil, badPage("after: want the next of a page of this inbox")
		}
	}
	return q, nil
}

// queryOf is a request's query, which has some names, each once at the most, and no others.
func queryOf(r *http.Request, names ...string) (url.Values, *Problem) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badPage("the query cannot be read")
	}
	for name, values := range query {
		if !slices.Contains(names, name) || len(values) != 1 {
			return nil, badPage("want a query of " + strings.Join(names, ", ") + ", each once")
		}
	}
	return query, nil
}

// number reads a number of a query.
func number(query url.Values, name string, usual, least, most int) (int, *Problem) {
	if !query.Has(name) {
		return usual, nil
	}
	n, err := strconv.Atoi(query.Get(name))
	if err != nil || n < least || n > most {
		return 0, badPage(name + ": want " + strconv.Itoa(least) + " to " + strconv.Itoa(most))
	}
	return n, nil
}

// tagsOf are the tags of If-None-Match.
func tagsOf(h http.Header) (tags []string) {
	for _, line := range h["If-None-Match"] {
		for tag := range strings.SplitSeq(line, ",") {
			tags = append(tags, strings.TrimPrefix(strings.TrimSpace(tag), "W/"))
		}
	}
	return tags
}

const inboxPath = "/v1/users/{user}/inbox"

// showInbox answers GET /v1/users/{user}/inbox: at once, or with wait when there is
// something that the caller does not have, and in the end in any case.
func (g *Gateway) showInbox(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	q, problem := g.inboxQuestion(r, v)
	if problem != nil {
		return problem
	}
	topics, problem := g.follow(r.Context(), q.key)
	if problem != nil {
		return problem
	}
	var wait *inbox.Wait
	var over <-chan time.Time
	if q.wait > 0 {
		var err error
		// Before the first look, so that nothing comes in between.
		if wait, err = g.o.Inbox.Watcher.Wait(q.key.Hash(), topics.hashes(q.key.App)...); err != nil {
			return newProblem(codeBusy, "so many wait for something new, in all or in this inbox, that no more may: ask without wait").after(5)
		}
		defer wait.Close()
		timer := time.NewTimer(q.wait)
		defer timer.Stop()
		over = timer.C
		g.lengthen(w, q.wait+afterWait)
	}
	leave := func() {}
	defer func() { leave() }()
	for more := q.wait > 0; ; {
		a, problem := g.inboxPage(r.Context(), q, topics)
		if problem != nil {
			return problem
		}
		if a.isNew(q) || !more {
			a.answer(w, q)
			g.bodies.give(a.room)
			return nil
		}
		g.bodies.give(a.room) // a page is not held while nothing happens
		leave()
		if more, leave = g.park(r.Context(), func() bool { return wait.Next(r.Context(), over) }); r.Context().Err() != nil {
			return nil // nobody is there any more
		}
		if topics, problem = g.follow(r.Context(), q.key); problem != nil { // who has left meanwhile is told no more
			return problem
		}
	}
}

// lengthen gives a request more time than others have, to be read and to be answered.
func (g *Gateway) lengthen(w http.ResponseWriter, by time.Duration) {
	c, until := http.NewResponseController(w), time.Now().Add(by)
	if err := errors.Join(c.SetReadDeadline(until), c.SetWriteDeadline(until)); err != nil {
		g.o.Log.Debug("a request cannot be given more time", "error", err)
	}
}

// wokenShare is the part of the requests that may be under way that those who have waited
// for something new may be: many are told at once, and there is room for sends meanwhile.
const wokenShare = 4

// park lets others have the request's place while it waits, and until it is its turn among
// those who have waited. leave lets the next one of these look.
func (g *Gateway) park(ctx context.Context, wait func() bool) (more bool, leave func()) {
	<-g.requests
	g.o.Metrics.underWay.Dec()
	g.o.Metrics.waiting.Inc()
	leave = func() {}
	defer func() {
		g.o.Metrics.waiting.Dec()
		g.requests <- struct{}{}
		g.o.Metrics.underWay.Inc()
	}()
	more = wait()
	select {
	case g.woken <- struct{}{}:
		leave = sync.OnceFunc(func() { <-g.woken })
	case <-ctx.Done():
	}
	return more, leave
}

// inboxItem is an entry in an answer.
type inboxItem struct {
	ID        string    `json:"id"`
	Topic     string    `json:"topic,omitempty"` // by which it came
	Cursor    string    `json:"cursor"`          // names it in marks
	At        time.Time `json:"at"`
	Type      string    `json:"type"`
	Priority  string    `json:"priority"`
	Read      bool      `json:"read"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Confidential says that a push has nothing of the content, and Sealed that the answer has
	// no more than was pushed.
	Confidential bool            `json:"confidential,omitempty"`
	Sealed       bool            `json:"sealed,omitempty"`
	Content      json.RawMessage `json:"content"`
}

// inboxAnswer is a page of an inbox.
type inboxAnswer struct {
	UserID   string      `json:"user_id"`
	App      string      `json:"app"`
	Items    []inboxItem `json:"items"`
	Withheld int         `json:"withheld"`                  // of this page, by limits
	Topics   int         `json:"topics_left_out,omitempty"` // that are pulled and not looked into
	Next     string      `json:"next,omitempty"`            // for after; "" = there are no more
	// FreeAt is when the first of what is withheld may be shown. It is free_at of the text,
	// behind the rest, and no part of the tag: some rules can only estimate it, and each
	// time another.
	FreeAt time.Time `json:"-"`

	room *room  // memory of the text; from the budget of bodies, to which it goes back
	text []byte // as it is sent
	tag  string // of the text
}

// isNew reports whether the caller, who may have waited, is to get the answer: it has
// something else than what the caller knows, or, who knows nothing, something at all.
func (a *inboxAnswer) isNew(q *inboxQuestion) bool {
	if len(q.known) > 0 {
		return !slices.Contains(q.known, a.tag)
	}
	return len(a.Items) > 0
}

// inboxPage reads a page and decides what of it is shown.
func (g *Gateway) inboxPage(ctx context.Context, q *inboxQuestion, topics *follows) (*inboxAnswer, *Problem) {
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Status)
	defer cancel()
	page, end, err := g.o.Inbox.Store.Page(ctx, q.key, topics.list, q.behind, q.limit)
	if err != nil {
		return nil, g.inboxAway(err)
	}
	a := &inboxAnswer{UserID: q.key.User, App: q.key.App, Items: []inboxItem{}, Topics: topics.leftOver}
	if !end && len(page) > 0 {
		a.Next = g.o.Signer.signCursor(q.key, page[len(page)-1].Position)
	}
	now := clock()
	page = slices.DeleteFunc(page, func(e inbox.Entry) bool {
		return !e.Expires.IsZero() && !now.Before(e.Expires) || !json.Valid(e.Content)
	})
	shown, problem := g.mayShow(ctx, q.key, topics, page, a, now)
	if problem != nil {
		return nil, problem
	}
	for i := range shown {
		e := topics.notification(q.key.User, shown[i])
		content, confidential, sealed := g.reveal(&shown[i], q)
		a.Items = append(a.Items, inboxItem{Confidential: confidential, Sealed: sealed, ID: e.ID, Topic: e.Topic, Cursor: g.o.Signer.signCursor(q.key, shown[i].Position), At: e.At, Type: e.Type,
			Priority: e.Priority.String(), Read: e.Read, ExpiresAt: e.Expires, Content: content})
	}
	return a, g.encodeInbox(a)
}

// itemBytes is more than an item has besides its content.
const itemBytes = 800

// encodeInbox makes the text of an answer, if there is memory for it.
func (g *Gateway) encodeInbox(a *inboxAnswer) *Problem {
	size := 1 << 10
	for i := range a.Items {
		size += itemBytes + len(a.Items[i].Content)
	}
	// A size that no pool has: HTTP/2 may hold on to the text of an answer that fails.
	if a.room = g.bodies.take(size|1, ofMany); a.room == nil {
		return newProblem(codeBusy, "so much is being read and answered that there is no memory for this").after(1)
	}
	text := bytes.NewBuffer(a.room.text)
	if err := json.NewEncoder(text).Encode(a); err != nil {
		panic(err) // our own structs always encode, and contents are valid
	}
	a.text = text.Bytes()
	sum := sha256.Sum256(a.text)
	if !a.FreeAt.IsZero() {
		a.text = append(a.text[:len(a.text)-len("}\n")], `,"free_at":`...)
		a.text = append(appendJSON(a.text, a.FreeAt), "}\n"...)
	}
	a.tag = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return nil
}

// mayShow asks the limits about what was not shown before, and notes what is now.
func (g *Gateway) mayShow(ctx context.Context, k inbox.Key, topics *follows, page []inbox.Entry, a *inboxAnswer, now time.Time) ([]inbox.Entry, *Problem) {
	var fresh []inbox.Entry
	var places []inbox.Position // of these
	for i := range page {
		if page[i].Shown.IsZero() {
			fresh, places = append(fresh, topics.notification(k.User, page[i])), append(places, page[i].Position)
		}
	}
	if g.o.Inbox.Limits == nil || len(fresh) == 0 {
		return page, nil
	}
	admissions, err := g.o.Inbox.Limits.Admit(ctx, k, fresh)
	if err != nil {
		g.o.Log.Warn("limits of inboxes cannot be counted", "error", err)
		return nil, newProblem(codeRegistryAway, "the registry of users does not answer, or is not complete: whether the limits have room cannot be told").after(2)
	}
	refused := make(map[inbox.Position]bool)
	var shown []inbox.Position
	for i := range fresh {
		switch one := admissions[i]; {
		case one.Shown:
			shown = append(shown, places[i])
			continue
		case !one.Hidden:
			a.Withheld++
			if !one.FreeAt.IsZero() && (a.FreeAt.IsZero() || one.FreeAt.Before(a.FreeAt)) {
				a.FreeAt = one.FreeAt.UTC()
			}
		}
		refused[places[i]] = true
	}
	// Without the note they are asked about again, by the same ids: nothing is spent twice
	// as long as the limit counts them.
	if err := g.o.Inbox.Store.Show(ctx, k, shown, now); err != nil {
		g.o.Log.Warn("what was shown of an inbox cannot be noted", "error", err)
	}
	return slices.DeleteFunc(page, func(e inbox.Entry) bool { return refused[e.Position] }), nil
}

func (g *Gateway) inboxAway(err error) *Problem {
	g.o.Log.Warn("inboxes cannot be used", "error", err)
	return newProblem(codeInboxAway, "the store of inboxes does not answer").after(2)
}

// answer writes the page, or that it is what the caller has.
func (a *inboxAnswer) answer(w http.ResponseWriter, q *inboxQuestion) {
	w.Header().Set("ETag", a.tag)
	if slices.Contains(q.known, a.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	answerText(w, http.StatusOK, a.text)
}
