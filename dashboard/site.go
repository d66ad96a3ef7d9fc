package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/explain"
)

// Lookups say what became of notifications, and what stands between a user and one. The
// words are those of the commands of pushctl. Its methods are called by one goroutine at
// a time.
type Lookups interface {
	// Notification explains a notification by its rows.
	Notification(ctx context.Context, id string) (explain.Notification, error)
	// User says step by step whether a notification would reach a user now. A *BadQuestion
	// is what the asker can mend.
	User(ctx context.Context, q Question) (Answers, error)
}

// Question is about a notification to a user. Only User must be given.
type Question struct {
	User, Lane, App, Type, Sender, Priority string
	Message                                 string // id of a message to a topic: what became of it for this user
}

// Answers are the steps that a notification takes, in their order.
type Answers struct {
	User         string                `json:"user"`
	Steps        []Step                `json:"steps"`
	Notification *explain.Notification `json:"notification,omitempty"` // of Question.Message
}

// Step is one step: what was asked, and what the answer is.
type Step struct {
	At   time.Time `json:"at,omitzero"` // when that came to be, or ends; none = it is so now
	Step string    `json:"step"`
	Says string    `json:"says"`
	Bad  bool      `json:"bad,omitempty"` // it stands in the way
}

// BadQuestion is a question that cannot be asked so.
type BadQuestion struct{ Err error }

func (e *BadQuestion) Error() string { return e.Err.Error() }
func (e *BadQuestion) Unwrap() error { return e.Err }

const (
	// lookupTime bounds a look-up.
	lookupTime = 15 * time.Second
	// maxStreams is how many browsers are shown the fleet at once.
	maxStreams = 64
	// maxWord bounds a parameter of a query in bytes.
	maxWord = 256
)

// Options are what a Site shows. Feed, Lookups, Access and Log are required; what else is
// nil is not on the page.
type Options struct {
	Feed    *Feed
	Lookups Lookups
	Letters Letters
	Fanouts Fanouts
	Access  *Access
	Log     *slog.Logger
}

// Site shows a Feed over HTTP. Its methods are safe for concurrent use.
type Site struct {
	o       Options
	access  *Access
	log     *slog.Logger
	pages   *pages
	streams chan struct{} // a place for each browser
	lookups line
	letters line
	handler http.Handler

	mu     sync.Mutex // guards the two below
	second int64
	drawn  map[Kind]*drawing // the snapshots of this second, by filter
}

// drawing is a snapshot that is encoded once for all who look.
type drawing struct {
	once sync.Once
	text []byte
	err  error
}

// NewSite shows a fleet to those whom access admits.
func NewSite(o Options) (*Site, error) {
	p, err := newPages()
	if err != nil {
		return nil, err
	}
	s := &Site{o: o, access: o.Access, log: o.Log, pages: p, drawn: make(map[Kind]*drawing), streams: make(chan struct{}, maxStreams), lookups: newLine(), letters: newLine()}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", s.seen(s.page))
	mux.Handle("GET /events", s.seen(s.stream))
	mux.Handle("GET /snapshot.json", s.seen(s.snapshot))
	mux.Handle("GET /lookup", s.seen(s.lookup))
	mux.Handle("GET /plan", s.seen(s.plan))
	mux.Handle("GET /letters", s.seen(s.listLetters))
	mux.Handle("POST /letters", s.seen(s.actOnLetters))
	mux.Handle("GET /fanouts", s.seen(s.listFanouts))
	mux.Handle("POST /fanouts", s.seen(s.orderFanout))
	mux.HandleFunc("GET /assets/{name}", p.asset)
	mux.HandleFunc("GET /login", s.askKey)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	s.handler = http.NewCrossOriginProtection().Handler(mux)
	return s, nil
}

// policy is what a page may load and do: what this server has, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if !s.access.host(r) {
		http.Error(w, "this server is for the machine it runs on: ask for it as localhost", http.StatusMisdirectedRequest)
		return
	}
	s.handler.ServeHTTP(w, r)
}

// seen lets through who may see the fleet.
func (s *Site) seen(then http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visitor := s.access.who(r, time.Now())
		switch {
		case visitor.role >= viewer:
			then(w, r)
		case visitor.why != nil && !errors.Is(visitor.why, ErrUnknownKey):
			refuse(w, http.StatusForbidden, visitor.why.Error())
		case r.URL.Path == "/":
			http.Redirect(w, r, "/login", http.StatusSeeOther)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="pushfleet dashboard"`)
			refuse(w, http.StatusUnauthorized, "a key is needed: Authorization: Bearer …, or log in at /login")
		}
	})
}

// refuse answers with an error, as the page reads it.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}

// tell answers with a value, as the page and programs read it.
func tell(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // who has gone needs no answer
}

func (s *Site) page(w http.ResponseWriter, r *http.Request) { s.pages.serve(w, r, "index.html") }

// wordsOf are the words of a query, bounded; false = it was refused.
func wordsOf(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	q := r.URL.Query()
	for _, words := range q {
		if len(words) != 1 || len(words[0]) > maxWord {
			refuse(w, http.StatusBadRequest, "each word is given once, with at most 256 bytes")
			return nil, false
		}
	}
	return q, true
}

// filterOf is what a query narrows to.
func filterOf(r *http.Request) (k Kind, ok bool) {
	q := r.URL.Query()
	for _, name := range Dimensions {
		word := q.Get(name)
		if len(word) > maxWord {
			return k, false
		}
		*k.field(name) = word
	}
	return k, true
}

// draw returns the snapshot of a filter in this second. It is encoded once for all.
func (s *Site) draw(now time.Time, filter Kind) ([]byte, error) {
	s.mu.Lock()
	if second := now.Unix(); second != s.second {
		s.second = second
		clear(s.drawn)
	}
	d := s.drawn[filter]
	if d == nil {
		d = &drawing{}
		if len(s.drawn) < 2*maxStreams { // more filters than browsers are nobody's way to look
			s.drawn[filter] = d
		}
	}
	s.mu.Unlock()
	d.once.Do(func() { d.text, d.err = s.o.Feed.Encode(now, filter) })
	return d.text, d.err
}

func (s *Site) snapshot(w http.ResponseWriter, r *http.Request) {
	filter, ok := filterOf(r)
	if !ok {
		refuse(w, http.StatusBadRequest, "a word of the query is too long")
		return
	}
	text, err := s.draw(time.Now(), filter)
	if err != nil {
		s.log.Error("the dashboard's snapshot", "error", err)
		refuse(w, http.StatusInternalServerError, "the snapshot cannot be made; the log says why")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // who has gone needs no answer
}

// lookup answers why a notification did or did not arrive, one question at a time.
func (s *Site) lookup(w http.ResponseWriter, r *http.Request) {
	q, ok := wordsOf(w, r)
	if !ok {
		return
	}
	ctx, leave := s.lookups.enter(w, r, lookupTime)
	if leave == nil {
		return
	}
	defer leave()
	var answer any
	var err error
	switch {
	case q.Get("id") != "":
		answer, err = s.o.Lookups.Notification(ctx, q.Get("id"))
	case q.Get("user") != "":
		answer, err = s.o.Lookups.User(ctx, Question{User: q.Get("user"), Lane: q.Get("lane"), App: q.Get("app"), Type: q.Get("type"),
			Sender: q.Get("sender"), Priority: q.Get("priority"), Message: q.Get("message")})
	default:
		err = &BadQuestion{errors.New("give an id, or a user")}
	}
	if bad, is := errors.AsType[*BadQuestion](err); is {
		refuse(w, http.StatusBadRequest, bad.Error())
		return
	}
	if err != nil {
		s.log.Warn("a look-up of the dashboard", "error", err)
		refuse(w, http.StatusServiceUnavailable, "the stores do not answer; the dashboard's log says why")
		return
	}
	tell(w, answer)
}
