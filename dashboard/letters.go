package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/pushfleet/pushfleet/dlq"
)

// Letters are the dead letters of a fleet. Its methods are those of *dlq.Queues.
type Letters interface {
	List(ctx context.Context, o dlq.ListOptions) (letters []dlq.Letter, older int, err error)
	Redrive(ctx context.Context, o dlq.RedriveOptions) (dlq.Redriven, error)
	Dismiss(ctx context.Context, o dlq.DismissOptions) (dlq.Dismissed, error)
}

const (
	// listTime bounds reading the dead letters.
	listTime = 25 * time.Second
	// actTime bounds redriving or dismissing them, and looking before that.
	actTime = 90 * time.Second
	// maxLetters is how many are listed, the newest.
	maxLetters = 100
	// maxRedrive is how many are redriven at once, and redriveRate how many a second: more,
	// and faster, is for `pushctl dlq redrive`.
	maxRedrive  = 1000
	redriveRate = 100
	// maxRedrives is how often one is redriven: as `pushctl dlq redrive` does.
	maxRedrives = 3
	// maxBy bounds the name for the audit topic in bytes.
	maxBy = 64
)

// letterWords are what dead letters are selected by.
type letterWords struct {
	Lane     string `json:"lane"`
	Reason   string `json:"reason"`
	App      string `json:"app"`
	Sender   string `json:"sender"`
	Provider string `json:"provider"`
	ID       string `json:"id"`
}

func letterWordsOf(q url.Values) letterWords {
	return letterWords{q.Get("lane"), q.Get("reason"), q.Get("app"), q.Get("sender"), q.Get("provider"), q.Get("id")}
}

func (l *letterWords) filter() (f dlq.Filter) {
	for word, into := range map[string]*[]string{l.Lane: &f.Lanes, l.Reason: &f.Reasons, l.App: &f.Apps, l.Sender: &f.Senders, l.Provider: &f.Providers, l.ID: &f.IDs} {
		if word != "" {
			*into = []string{word}
		}
	}
	return f
}

// listed is the answer to GET /letters.
type listed struct {
	Letters []dlq.Letter `json:"letters"` // the newest last
	Older   int          `json:"older"`   // that are not listed
	// Acts is who may redrive and dismiss: "you", "admin" (who gives that key), or "nobody"
	// (there is none).
	Acts string `json:"acts"`
}

// listLetters answers with the open dead letters, without text and tokens.
func (s *Site) listLetters(w http.ResponseWriter, r *http.Request) {
	q, ok := wordsOf(w, r)
	if !ok || !s.hasLetters(w) {
		return
	}
	ctx, leave := s.letters.enter(w, r, listTime)
	if leave == nil {
		return
	}
	defer leave()
	words := letterWordsOf(q)
	answer := listed{Acts: s.acts(r)}
	var err error
	answer.Letters, answer.Older, err = s.o.Letters.List(ctx, dlq.ListOptions{Filter: words.filter(), Limit: maxLetters})
	if err != nil {
		s.refuseLetters(w, err)
		return
	}
	tell(w, answer)
}

// acts says whether who asks may change something.
func (s *Site) acts(r *http.Request) string {
	switch {
	case s.access.role(r, time.Now()) == admin:
		return "you"
	case s.access.acts:
		return "admin"
	}
	return "nobody"
}

func (s *Site) hasLetters(w http.ResponseWriter) bool {
	if s.o.Letters == nil {
		refuse(w, http.StatusNotFound, "this dashboard has no dead letters")
		return false
	}
	return true
}

// refuseLetters says why dead letters are not told or acted on.
func (s *Site) refuseLetters(w http.ResponseWriter, err error) {
	if option, is := errors.AsType[*dlq.OptionError](err); is {
		refuse(w, http.StatusBadRequest, option.Error())
		return
	}
	s.log.Warn("the dashboard's dead letters", "error", err)
	refuse(w, http.StatusServiceUnavailable, "Kafka does not answer, or a topic is missing; the dashboard's log says why")
}

// The acts on dead letters.
const (
	redrive = "redrive"
	dismiss = "dismiss"
)

// letterAct is the body of POST /letters.
type letterAct struct {
	Act string `json:"act"` // redrive or dismiss
	letterWords
	// Until bounds the time of dead-lettering: what a dry run has counted. Zero = now.
	Until   time.Time `json:"until"`
	Do      bool      `json:"do"`      // false = a dry run
	Seen    string    `json:"seen"`    // of a dry run's answer
	Confirm string    `json:"confirm"` // of it too, typed by who acts
	By      string    `json:"by"`      // who that is, for the audit topic

	signature string // By, and how he came
}

// letterActed is the answer to it.
type letterActed struct {
	Act     string         `json:"act"`
	DryRun  bool           `json:"dry_run"`
	N       int            `json:"n"`       // redriven or dismissed; in a dry run: what would be
	Skipped map[string]int `json:"skipped"` // of those that were selected: count by reason
	More    bool           `json:"more"`    // there may be others: as many as are redriven at once have been
	Delay   float64        `json:"delay_seconds,omitempty"`
	Until   time.Time      `json:"until"`
	Seen    string         `json:"seen,omitempty"`    // of a dry run: what it has counted, as a digest
	Confirm string         `json:"confirm,omitempty"` // what to type to do it
	Error   string         `json:"error,omitempty"`   // it ended in the middle
}

// check says what is wrong with a request; empty = nothing is.
func (a *letterAct) check() string {
	switch {
	case a.Act != redrive && a.Act != dismiss:
		return "act: want redrive or dismiss"
	case !a.Do:
		return ""
	case !isName(a.By):
		return badName
	case a.Until.IsZero():
		return "until: give that of the dry run"
	}
	return ""
}

// isName reports whether a name can be kept of who acts. What turns the direction of text, or
// breaks lines, would let another name be read where it is shown.
func isName(by string) bool {
	return by != "" && len(by) <= maxBy && !strings.ContainsFunc(by, func(r rune) bool {
		return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
	})
}

// badName is what is said of one that cannot.
const badName = "by: say who you are, in at most 64 bytes without control characters: it is kept"

// actOnLetters redrives or dismisses dead letters, or says what it would do. What is done
// was typed by somebody with the admin key: the act and how many a dry run has counted. It
// is counted again before, so that nobody does anything but what was seen: who asks twice
// does it once, also where there are more than are redriven at once.
func (s *Site) actOnLetters(w http.ResponseWriter, r *http.Request) {
	var a letterAct
	if !s.hasLetters(w) || !s.read(w, r, &a) {
		return
	}
	visitor := s.access.who(r, time.Now())
	if a.Do && visitor.role != admin {
		refuse(w, http.StatusForbidden, "the admin key is needed: log in with it")
		return
	}
	if wrong := a.check(); wrong != "" {
		refuse(w, http.StatusBadRequest, wrong)
		return
	}
	a.signature = s.access.signature(a.By, visitor)
	if a.Until.IsZero() {
		a.Until = time.Now().UTC()
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(actTime + writeTime)); err != nil {
		s.log.Debug("no deadline for an answer", "error", err)
	}
	ctx, leave := s.letters.enter(w, r, actTime)
	if leave == nil {
		return
	}
	defer leave()
	if a.Do && !s.stillActs(w, r) {
		return
	}
	answer, err := s.act(ctx, &a, false)
	if err == nil && a.Do {
		if a.Confirm != answer.Confirm {
			refuse(w, http.StatusConflict, fmt.Sprintf("nothing was done: it would be %q now, and %q was typed", answer.Confirm, a.Confirm))
			return
		}
		if a.Seen != answer.Seen {
			refuse(w, http.StatusConflict, "nothing was done: it would be others now than were counted; count again")
			return
		}
		answer, err = s.act(ctx, &a, true)
		if err != nil && (answer.N > 0 || isUncounted(err)) { // what was done is told with the error
			s.log.Warn("the dashboard's dead letters", "act", a.Act, "done", answer.N, "error", err)
			answer.Error = fmt.Sprintf("it ended in the middle: %d were done, and maybe some more; doing it again is harmless", answer.N)
			tell(w, answer)
			return
		}
	}
	if err != nil {
		s.refuseLetters(w, err)
		return
	}
	tell(w, answer)
}

// stillActs reports whether who has waited may still change something: meanwhile its key may
// have gone. false = it was refused.
func (s *Site) stillActs(w http.ResponseWriter, r *http.Request) bool {
	if s.access.role(r, time.Now()) == admin {
		return true
	}
	refuse(w, http.StatusForbidden, "nothing was done: the key is no admin's any more")
	return false
}

func isUncounted(err error) bool {
	_, is := errors.AsType[*dlq.UncountedError](err)
	return is
}

// act does it, or counts what it would do.
func (s *Site) act(ctx context.Context, a *letterAct, do bool) (letterActed, error) {
	answer := letterActed{Act: a.Act, DryRun: !do, Skipped: map[string]int{}, Until: a.Until}
	filter := a.filter()
	filter.Until = a.Until
	var err error
	var letters []dlq.Letter // of what is redriven; who dismisses takes all that there are
	if a.Act == redrive {
		var v dlq.Redriven
		v, err = s.o.Letters.Redrive(ctx, dlq.RedriveOptions{Filter: filter, Rate: redriveRate, Limit: maxRedrive, MaxRedrives: maxRedrives, List: maxRedrive, Do: do, By: a.signature})
		letters = v.Letters
		answer.N, answer.Skipped, answer.Delay, answer.More = v.Redriven, v.Skipped, v.Delay, v.Redriven == maxRedrive
	} else {
		var v dlq.Dismissed
		v, err = s.o.Letters.Dismiss(ctx, dlq.DismissOptions{Filter: filter, Do: do, By: a.signature})
		answer.N = v.Dismissed
	}
	if !do {
		answer.Confirm, answer.Seen = fmt.Sprintf("%s %d", a.Act, answer.N), a.seen(letters)
	}
	return answer, err
}

// seen is a digest of what an act is about: how they were selected, and which they are.
func (a *letterAct) seen(letters []dlq.Letter) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d", a.Act, a.letterWords, a.Until.UnixNano())
	for i := range letters {
		fmt.Fprintf(h, " %q", letters[i].Place)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// read reads the JSON body of a request; false = it was refused. CrossOriginProtection has
// seen to it that no other page sent it.
func (s *Site) read(w http.ResponseWriter, r *http.Request, into any) bool {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(headerTime)); err != nil {
		s.log.Debug("no deadline for a body", "error", err)
	}
	// Left in place it would end the request's context.
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxForm))
	d.DisallowUnknownFields()
	if r.Header.Get("Content-Type") != "application/json" || d.Decode(into) != nil {
		refuse(w, http.StatusBadRequest, "want a JSON object with the fields of docs/dashboard.md, at most 4 KiB")
		return false
	}
	return true
}
