package gateway

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// Reports keep what apps report back of notifications: clicks.Store, or clicks.Memory. It is
// safe for concurrent use.
type Reports interface {
	Note(ctx context.Context, r *clicks.Report) error
	Of(ctx context.Context, k clicks.Key) ([]clicks.Noted, error)
	Counts(ctx context.Context, q *clicks.Question) (list []clicks.Count, more bool, err error)
}

// Clicks is the side of a gateway that gives tokens to messages, and takes what apps report
// by them. All is required.
type Clicks struct {
	Store Reports       // stays the caller's
	Valid time.Duration // of a token, from when its notification counts as sent
	Kept  time.Duration // of what is reported: at least Valid, or a repeat would count again
	Rate  int           // reports a second that are taken, and as many at once
}

// intake bounds the reports that a gateway takes: anybody may make them.
type intake struct {
	places  chan struct{} // one in it for each that is under way
	batches chan struct{} // and for each batch

	mu   sync.Mutex
	room float64   // guarded by mu; so many more may be taken now
	at   time.Time // guarded by mu; when there was that room
}

func newIntake(requests int, c *Clicks) *intake {
	most := max(requests/keylessShare, 1)
	r := &intake{places: make(chan struct{}, most), batches: make(chan struct{}, max(min(most/batchShare, mostReportBatches), 1))}
	if c != nil {
		r.room, r.at = float64(c.Rate), time.Now()
	}
	return r
}

// admit reports whether one more may be taken, of so many a second.
func (r *intake) admit(rate int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.room = min(r.room+now.Sub(r.at).Seconds()*float64(rate), float64(rate))
	r.at = now
	if r.room < 1 {
		return false
	}
	r.room--
	return true
}

func noClicks() *Problem {
	return newProblem(codeNotConfigured, "this gateway takes no reports of clicks (gateway.clicks)")
}

// clickable is a message's value with a token. The owner's key fits behind it. One for many
// receivers stays as it is: each of their notifications gets a token of its own.
func (g *Gateway) clickable(k *check, value []byte, id string, to owner) ([]byte, *Problem) {
	switch {
	case g.o.Clicks == nil:
		return nil, noClicks().at("/" + memberClicks)
	case to.user == "":
		return nil, newProblem(codeInvalidField, "clicks are counted by user, and the message is for a device alone").at("/" + memberClicks)
	case hasData(value, clickKey):
		return nil, newProblem(codeInvalidField, "the click token has this name").at("/" + memberData + "/" + clickKey)
	case k.many:
		return value, nil
	}
	c := &clickClaim{clicks.Key{User: to.user, App: k.read.App, ID: id}, k.read.Type, k.caller.Sender, clicks.SentAt(id, k.now)}
	value = g.o.Signer.withClick(value, c, len(to.key()))
	if len(value) > decode.MaxValue {
		return nil, refused(&push.Defect{Reason: push.TooLarge})
	}
	return value, nil
}

// reportRequest is the body of POST /v1/events.
type reportRequest struct {
	Token string `json:"token"`
	Event string `json:"event"`
}

var reportFields = []string{"token", "event"}

// maxReport is the largest body of a report, in bytes.
const maxReport = 2 << 10

// report answers POST /v1/events. Whoever has the token of a notification may say what its
// user did with it, and is told nothing else.
func (g *Gateway) report(w http.ResponseWriter, r *http.Request) *Problem {
	if g.o.Clicks == nil {
		return noClicks()
	}
	select {
	case g.intake.places <- struct{}{}:
		defer func() { <-g.intake.places }()
	default:
		return newProblem(codeBusy, "so many reports are under way that this one was not looked at").after(1)
	}
	event, c, problem := g.readReport(r)
	if problem == nil {
		problem = g.note(r.Context(), event, c)
	}
	if problem != nil {
		g.o.Metrics.reported(event, problem)
		return problem
	}
	g.o.Metrics.reported(event, nil)
	answer(w, http.StatusOK, "application/json", struct {
		Event string `json:"event"`
	}{event.String()})
	return nil
}

// readReport reads what is reported of which notification.
func (g *Gateway) readReport(r *http.Request) (clicks.Event, *clickClaim, *Problem) {
	var q reportRequest
	if problem := g.readObject(r, maxReport, &q, reportFields); problem != nil {
		return 0, nil, problem
	}
	return g.claimed(&q)
}

// claimed is what a report says of which notification.
func (g *Gateway) claimed(q *reportRequest) (clicks.Event, *clickClaim, *Problem) {
	event, known := clicks.ParseEvent(q.Event)
	if !known {
		return 0, nil, newProblem(codeInvalidField, "want CLICKED or UNSUBSCRIBED").at("/event")
	}
	c, ok := g.o.Signer.openClick(q.Token)
	switch {
	case !ok:
		return event, nil, newProblem(codeNoToken, "no such token, or its secret is gone")
	case time.Since(c.sent) >= g.o.Clicks.Valid:
		return event, nil, newProblem(codeGone, "the token has ended")
	}
	return event, c, nil
}

// note does what a report says, and keeps it. Done again, it changes nothing.
func (g *Gateway) note(ctx context.Context, event clicks.Event, c *clickClaim) *Problem {
	if !g.intake.admit(g.o.Clicks.Rate) {
		return newProblem(codeBusy, "so many reports come that this one was not taken: send it again").after(1)
	}
	if event == clicks.Unsubscribed && !g.wasUnsubscribed(ctx, c.Key) { // first: what is kept has taken effect
		if problem := g.optOut(ctx, c.User, c.kind); problem != nil {
			return problem
		}
	}
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Status)
	defer cancel()
	if err := g.o.Clicks.Store.Note(ctx, &clicks.Report{Key: c.Key, Event: event, Type: c.kind, Sender: c.sender, Sent: c.sent, At: clock()}); err != nil {
		return g.reportsAway(err)
	}
	return nil
}

// wasUnsubscribed reports whether it is known that a user has unsubscribed by this notification,
// and may want something else by now. What cannot be read is not known.
func (g *Gateway) wasUnsubscribed(ctx context.Context, k clicks.Key) bool {
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Status/2)
	defer cancel()
	noted, err := g.o.Clicks.Store.Of(ctx, k)
	return err == nil && slices.ContainsFunc(noted, func(n clicks.Noted) bool { return n.Event == clicks.Unsubscribed })
}

func (g *Gateway) reportsAway(err error) *Problem {
	g.o.Log.Warn("reports of clicks cannot be kept or read", "error", err)
	return newProblem(codeStatusAway, "the store of reports did not answer in time. It may have been kept: send it again, which does no harm").after(2)
}

// reported is an event of a notification, in answers.
type reported struct {
	Event string    `json:"event"`
	At    time.Time `json:"at"` // when it was first reported
}

// addReported adds to reports of notifications what apps have reported of them. A bare id
// does not say whose it is.
func (g *Gateway) addReported(ctx context.Context, all []*asked, results []found) *Problem {
	if g.o.Clicks == nil {
		return nil
	}
	var looking sync.WaitGroup
	places, errs := make(chan struct{}, looksAtOnce), make([]error, len(all))
	for i, a := range all {
		if a == nil || a.claim == nil || a.claim.owner.user == "" || len(a.rows) == 0 || results[i].report == nil {
			continue
		}
		places <- struct{}{}
		looking.Go(func() {
			defer func() { <-places }()
			results[i].report.Events, errs[i] = g.reportedOf(ctx, clicks.Key{User: a.claim.owner.user, App: a.claim.app, ID: a.id})
		})
	}
	looking.Wait()
	for _, err := range errs {
		if err != nil {
			return g.reportsAway(err)
		}
	}
	return nil
}

func (g *Gateway) reportedOf(ctx context.Context, k clicks.Key) (list []reported, err error) {
	noted, err := g.o.Clicks.Store.Of(ctx, k)
	for _, n := range noted {
		list = append(list, reported{n.Event.String(), n.At})
	}
	return list, err
}

// eventMeanings are what events mean in a list of steps.
var eventMeanings = map[string]string{
	clicks.Clicked.String():      "the app reported that the user clicked it",
	clicks.Unsubscribed.String(): "the app reported that the user wants no more of its type",
}

// tellReported adds what apps have reported of a user's notification to its steps. It is
// that of one of these apps.
func (g *Gateway) tellReported(ctx context.Context, y *Why, apps ...string) *Problem {
	if g.o.Clicks == nil || y.Notification == "" {
		return nil
	}
	for _, app := range apps {
		list, err := g.reportedOf(ctx, clicks.Key{User: y.UserID, App: app, ID: y.Notification})
		if err != nil {
			return g.reportsAway(err)
		}
		for _, e := range list {
			y.step(stepReported, e.Event, e.At, eventMeanings[e.Event])
		}
	}
	return nil
}

// usualDays are those of a question that names none.
const usualDays = 30

// countsAnswer is how often a user has clicked.
type countsAnswer struct {
	UserID string       `json:"user_id"`
	App    string       `json:"app"`
	Sender string       `json:"sender,omitempty"` // whose notifications alone are counted
	From   string       `json:"from"`
	To     string       `json:"to"`
	Counts []countOfDay `json:"counts"`
	More   bool         `json:"more"` // there are so many that they are not all counted
}

// countOfDay is what was reported of the notifications of a type and a day.
type countOfDay struct {
	Day          string `json:"day"`
	Type         string `json:"type"`
	Clicked      int    `json:"clicked"`
	Unsubscribed int    `json:"unsubscribed"`
}

// clickCounts answers GET /v1/users/{user}/clicks.
func (g *Gateway) clickCounts(w http.ResponseWriter, r *http.Request) *Problem {
	q, problem := g.clicksQuestion(r)
	if problem != nil {
		return problem
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	list, more, err := g.o.Clicks.Store.Counts(ctx, q)
	if err != nil {
		g.o.Log.Warn("reports of clicks cannot be read", "error", err)
		return newProblem(codeStatusAway, "the store of reports does not answer").after(2)
	}
	a := countsAnswer{UserID: q.User, App: q.App, Sender: q.Sender, From: q.From.Format(time.DateOnly), To: q.To.Format(time.DateOnly),
		Counts: []countOfDay{}, More: more}
	for _, c := range list {
		a.Counts = append(a.Counts, countOfDay{c.Day.Format(time.DateOnly), c.Type, c.Clicked, c.Unsubscribed})
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

// clicksQuestion reads who asks about whom.
func (g *Gateway) clicksQuestion(r *http.Request) (*clicks.Question, *Problem) {
	v, sender, problem := g.readerOf(r)
	if problem != nil {
		return nil, problem
	}
	q := &clicks.Question{User: v.user, Sender: sender}
	if g.o.Clicks == nil {
		return nil, noClicks()
	}
	query, problem := queryOf(r, "app", "days")
	if problem != nil {
		return nil, problem
	}
	if q.App, problem = g.appOf(v, query.Get("app")); problem != nil {
		return nil, problem
	}
	most := min(int(g.o.Clicks.Kept/(24*time.Hour)), clicks.MaxDays)
	days, problem := number(query, "days", min(usualDays, most), 1, most)
	if problem != nil {
		return nil, problem
	}
	q.To = clock().Truncate(24 * time.Hour)
	q.From = q.To.AddDate(0, 0, 1-days)
	return q, nil
}
