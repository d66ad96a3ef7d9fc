package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/push"
)

// JournalReader reads which messages users were meant to get: journal.Store, or
// journal.Memory. It is safe for concurrent use.
type JournalReader interface {
	Page(ctx context.Context, q *journal.Question) (page []journal.Entry, next *journal.Position, err error)
}

// Journal is the side of a gateway that finds messages by user.
type Journal struct {
	Store JournalReader
	Kept  time.Duration // for how long the longest lane keeps them
}

// usualMessages is how many messages of a user a page has.
const usualMessages = 20

// messagesAnswer are messages of a user.
type messagesAnswer struct {
	UserID   string        `json:"user_id"`
	Since    time.Time     `json:"since"` // older ones are not looked for
	Messages []userMessage `json:"messages"`
	Next     string        `json:"next,omitempty"` // empty = there are no more
}

// userMessage is one of them, with what became of it so far.
type userMessage struct {
	ID        string    `json:"id"`
	App       string    `json:"app"`
	Sender    string    `json:"sender_id"`
	Type      string    `json:"type"`
	Lane      string    `json:"lane"`
	At        time.Time `json:"at"` // the time in its id, or when its first record was written
	Status    string    `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	Meaning   string    `json:"meaning"`
	Final     bool      `json:"final"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	Devices   []Device  `json:"devices"`
}

// messagesOfUser answers GET /v1/users/{user}/messages.
func (g *Gateway) messagesOfUser(w http.ResponseWriter, r *http.Request) *Problem {
	q, problem := g.journalQuestion(r)
	if problem != nil {
		return problem
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	page, next, err := g.o.Journal.Store.Page(ctx, q)
	if err != nil {
		g.o.Log.Warn("messages of a user cannot be read", "error", err)
		return newProblem(codeStatusAway, "the store of users' messages does not answer").after(2)
	}
	a := messagesAnswer{UserID: q.User, Since: q.Since, Messages: make([]userMessage, 0, len(page))}
	if next != nil {
		a.Next = journalCursor(next)
	}
	all := make([]*asked, len(page))
	for i := range page {
		all[i] = &asked{text: page[i].ID, id: page[i].ID}
	}
	if err := g.read(ctx, all, func(a *asked) string { return a.id }); err != nil {
		return g.rowsAway(err)
	}
	now := clock()
	for i := range page {
		all[i].rows, _ = push.OwnRows(all[i].rows, push.UserHash(q.User))
		a.Messages = append(a.Messages, g.messageOf(&page[i], all[i], now))
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

// messageOf is an entry with what its rows say.
func (g *Gateway) messageOf(e *journal.Entry, a *asked, now time.Time) userMessage {
	m := userMessage{ID: e.ID, App: e.App, Sender: e.Sender, Type: e.Type, Lane: e.Lane, At: e.At, Devices: []Device{}}
	switch {
	case len(a.rows) > 0:
		r := g.judge(a, now).report
		m.Status, m.Reason, m.Meaning, m.Final, m.UpdatedAt, m.Devices = r.Status, r.Reason, r.Meaning, r.Final, r.UpdatedAt, r.Devices
		if words := explain.Reason(r.Reason, ""); words != "" {
			m.Meaning += ": " + words
		}
	case now.Sub(e.At) > g.o.Times.Kept:
		m.Status, m.Meaning, m.Final = statusUnknown, "it is longer ago than states are kept: its outcome is no longer known", true
	default:
		m.Status, m.Meaning = statusPending, "a worker has begun with it, and it has no state yet"
	}
	return m
}

// journalQuestion reads who asks about whom: a key about all of its apps, unless it names one.
func (g *Gateway) journalQuestion(r *http.Request) (*journal.Question, *Problem) {
	v, sender, problem := g.readerOf(r)
	if problem != nil {
		return nil, problem
	}
	q := &journal.Question{User: v.user, Sender: sender, Behind: journal.Top(clock())}
	if g.o.Journal == nil {
		return nil, newProblem(codeNotConfigured, "no lane of this fleet notes which messages are a user's (lanes[].journal)")
	}
	query, problem := queryOf(r, "app", "days", "after", "limit")
	if problem != nil {
		return nil, problem
	}
	if q.Apps = slices.Sorted(maps.Keys(v.caller.apps)); v.pass != nil || query.Has("app") {
		app, problem := g.appOf(v, query.Get("app"))
		if problem != nil {
			return nil, problem
		}
		q.Apps = []string{app}
	}
	const day = 24 * time.Hour
	most := int(g.o.Journal.Kept / day)
	days, problem := number(query, "days", most, 1, most)
	if problem != nil {
		return nil, problem
	}
	q.Since = clock().Add(-time.Duration(days) * day).UTC().Truncate(time.Millisecond)
	if q.Limit, problem = number(query, "limit", usualMessages, 1, journal.MaxPage); problem != nil {
		return nil, problem
	}
	if query.Has("after") {
		var ok bool
		if q.Behind, ok = openJournalCursor(query.Get("after")); !ok {
			return nil, badPage("after: want the next of a page of these messages")
		}
	}
	return q, nil
}

// journalCursor is a place in a journal as a text. It tells nobody anything that the page has
// not, so it is not signed.
func journalCursor(p *journal.Position) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.At.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(b, p.ID...))
}

func openJournalCursor(text string) (p journal.Position, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 8 || len(b) > 8+maxText {
		return p, false
	}
	at := int64(binary.BigEndian.Uint64(b))
	if at < 0 || at > 1<<53 {
		return p, false
	}
	return journal.Position{At: time.UnixMilli(at).UTC(), ID: string(b[8:])}, utf8.Valid(b[8:])
}
