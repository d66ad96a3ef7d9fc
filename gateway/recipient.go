package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// statusNotSent is that of a user for whom a message became no notification.
const statusNotSent = "NOT_SENT"

// Why is what a message came to for one user, and by which steps.
type Why struct {
	ID           string `json:"id"` // of the message
	UserID       string `json:"user_id"`
	Notification string `json:"notification,omitempty"` // id of the user's own; empty = there is none
	Status       string `json:"status"`
	Reason       string `json:"reason,omitempty"`
	Meaning      string `json:"meaning"`
	Final        bool   `json:"final"` // nothing more happens
	Steps        []Step `json:"steps"` // in the order in which they are taken

	next int // seconds after which it may be asked for again; 0 = there is no need
}

// Step is one thing that decides about a user.
type Step struct {
	Step    string    `json:"step"` // message, subscription, audience, chunk, receiver, state, reported
	State   string    `json:"state"`
	Reason  string    `json:"reason,omitempty"`
	Device  string    `json:"device,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Meaning string    `json:"meaning"`
}

// What decides.
const (
	stepMessage      = "message"
	stepSubscription = "subscription"
	stepAudience     = "audience"
	stepChunk        = "chunk"
	stepReceiver     = "receiver"
	stepState        = "state"    // a row of the status store
	stepReported     = "reported" // what the app has told of it
)

// recipient answers GET /v1/messages/{id}/recipients/{user}. {id} is a receipt; or, of a
// message to a topic that has begun, the id by which fan-outs know it; or any id, by who may
// ask for those.
func (g *Gateway) recipient(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	user := r.PathValue("user")
	if subscriptions.CheckUser(user) != nil {
		return newProblem(codeInvalidField, "want a user's id: 1 to 128 bytes of UTF-8 without control characters").at("/user")
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	why, problem := g.why(ctx, c, r.PathValue("id"), user)
	if problem != nil {
		return problem
	}
	if why.next > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(why.next))
	}
	answer(w, http.StatusOK, "application/json", why)
	return nil
}

// why finds out which message is meant, and whether the caller may ask about it.
func (g *Gateway) why(ctx context.Context, c *Caller, text, user string) (*Why, *Problem) {
	id, cl, problem := g.fanoutOf(ctx, c, text)
	switch {
	case problem != nil:
		return nil, problem
	case id == uuid.UUID{}:
		return g.whySingle(ctx, c, text, user)
	}
	return g.whyFanout(ctx, id, cl, user)
}

// fanoutOf is the message for many receivers that a text names and that the caller may read
// about, with the claim of its receipt, if the text is one; zero = it names none.
func (g *Gateway) fanoutOf(ctx context.Context, c *Caller, text string) (uuid.UUID, *claim, *Problem) {
	cl, own := g.o.Signer.open(c.Sender, text)
	switch {
	case own && cl.isFanout() && c.apps[cl.app] && g.o.Fanouts == nil:
		return uuid.UUID{}, nil, noFanouts().of(cl.id)
	case own && cl.isFanout() && c.apps[cl.app] && len(c.topics) == 0:
		return cl.fanout(), cl, nil
	case own && cl.isFanout() && c.apps[cl.app]: // its topic is known once it has begun
		p, err := g.o.Fanouts.Records.Look(ctx, cl.fanout())
		switch {
		case err != nil:
			return uuid.UUID{}, nil, g.fanoutsAway(err, cl.id)
		case p != nil && !c.hasJob(p.Job):
			return uuid.UUID{}, nil, noReceipt()
		}
		return cl.fanout(), cl, nil
	case own, g.o.Fanouts == nil:
		return uuid.UUID{}, nil, nil
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.UUID{}, nil, nil
	}
	p, err := g.o.Fanouts.Records.Look(ctx, id)
	switch {
	case err != nil:
		return uuid.UUID{}, nil, g.fanoutsAway(err, text)
	case p != nil && c.hasJob(p.Job) && (p.Job.Sender == c.Sender || c.may(Admin)):
		return id, nil, nil
	}
	return uuid.UUID{}, nil, nil
}

func (g *Gateway) fanoutsAway(err error, id string) *Problem {
	g.o.Log.Warn("fan-outs cannot be read", "error", err)
	return newProblem(codeStatusAway, "Cassandra does not say how far it is; it goes on").of(id).after(2)
}

// acceptedAt is when a message to many receivers was accepted, of which there is a note or a
// receipt. The problem says that it is longer ago than what became of it is kept: fan-outs
// are known for longer than the rows of their notifications.
func (g *Gateway) acceptedAt(p *fanout.Progress, cl *claim, now time.Time, id string) (at time.Time, gone *Problem) {
	switch {
	case p != nil:
		at = p.Job.Accepted
	case cl != nil:
		at = cl.at
	}
	if now.Sub(at) > g.o.Times.Kept {
		return at, newProblem(codeGone, "it was accepted longer ago than is kept what became of it").of(id)
	}
	return at, nil
}

func (y *Why) step(name, state string, at time.Time, meaning string) *Step {
	y.Steps = append(y.Steps, Step{Step: name, State: state, At: at, Meaning: meaning})
	return &y.Steps[len(y.Steps)-1]
}

// whySingle is why for a message to one user.
func (g *Gateway) whySingle(ctx context.Context, c *Caller, text, user string) (*Why, *Problem) {
	a, problem := g.open(c, text)
	if problem != nil {
		return nil, problem
	}
	if a.claim != nil { // half the time is the rows', as in lookUp
		asking, done := context.WithTimeout(ctx, g.o.Times.Status/2)
		a.stage, a.err = g.stage(asking, a.claim)
		done()
	}
	if err := g.readRows(ctx, []*asked{a}); err != nil {
		return nil, g.rowsAway(err)
	}
	y := &Why{ID: a.id, UserID: user}
	foreign := false
	if a.claim != nil {
		foreign = a.claim.owner.user != user
		y.step(stepMessage, fanoutAccepted, a.claim.at, "accepted for lane "+a.claim.lane)
	} else if a.rows, foreign = push.OwnRows(a.rows, push.UserHash(user)); len(a.rows) > 0 {
		foreign = false
	}
	if foreign {
		y.step(stepReceiver, "other", time.Time{}, "it is for another user, or for a device alone")
		g.notSent(y, "not_receiver", "the message is not for this user")
		return y, nil
	}
	f := g.judge(a, time.Now())
	if f.problem != nil {
		return nil, f.problem
	}
	y.step(stepReceiver, "user", time.Time{}, "it is for this user")
	y.Notification = a.id
	g.tell(y, f.report, a.rows)
	if a.claim != nil {
		return y, g.tellReported(ctx, y, a.claim.app)
	}
	return y, g.tellReported(ctx, y, slices.Sorted(maps.Keys(c.apps))...)
}

// notSent ends the answer about a user who has no notification and gets none.
func (g *Gateway) notSent(y *Why, reason, meaning string) {
	y.Status, y.Reason, y.Meaning, y.Final = statusNotSent, reason, meaning, true
	g.o.Metrics.receipt(y.Status)
}

// unfinished ends the answer about a user of whom more may become known.
func (g *Gateway) unfinished(y *Why, status, reason, meaning string, since time.Duration) {
	y.Status, y.Reason, y.Meaning, y.next = status, reason, meaning, pollAfter(since)
	g.o.Metrics.receipt(y.Status)
}

// tell ends the answer about a user who has a notification: with its states, in the order
// of time, as `pushctl status` shows them.
func (g *Gateway) tell(y *Why, r *Report, rows []push.Row) {
	y.Status, y.Reason, y.Final, y.next = r.Status, r.Reason, r.Final, r.next
	y.Meaning = r.Meaning
	if words := explain.Reason(r.Reason, ""); words != "" {
		y.Meaning += ": " + words
	}
	n := explain.Of(r.ID, rows, explain.Times{Kept: g.o.Times.Kept, Delay: g.o.Times.Delay}, time.Now())
	for _, s := range n.States {
		meaning := s.Meaning
		switch {
		case meaning != "":
		case s.State == push.StateDelivered.String():
			meaning = "accepted by the provider"
		case s.State == push.StateSending.String():
			meaning = "a worker began to send it"
		default:
			meaning = "no more is known of it"
		}
		step := y.step(stepState, s.State, s.At, meaning)
		step.Reason, step.Device = s.Reason, s.Device
	}
}

func (g *Gateway) rowsAway(err error) *Problem {
	g.o.Log.Warn("the status store does not answer", "error", err)
	return newProblem(codeStatusAway, "the status store does not answer; sends go on").after(2)
}

// whyFanout is why for a message to many receivers. What was noted of the
// audience is read before the notification's states: what is told of it is at least as old
// as they are.
func (g *Gateway) whyFanout(ctx context.Context, id uuid.UUID, cl *claim, user string) (*Why, *Problem) {
	p, err := g.o.Fanouts.Records.Look(ctx, id)
	if err != nil {
		return nil, g.fanoutsAway(err, id.String())
	}
	y := &Why{ID: id.String(), UserID: user}
	if cl != nil {
		y.ID = cl.id
	}
	now := time.Now()
	accepted, problem := g.acceptedAt(p, cl, now, y.ID)
	switch {
	case problem != nil:
		return nil, problem
	case p == nil:
		const meaning = "in Kafka, and not begun"
		y.step(stepMessage, fanoutAccepted, accepted, meaning)
		g.unfinished(y, statusPending, "", meaning, now.Sub(accepted))
		return y, nil
	}
	j := p.Job
	member, problem := g.member(ctx, y, p, user)
	if problem != nil {
		return nil, problem
	}
	ended, err := g.o.Fanouts.Records.Ended(ctx, id, j.To.PartOf(user))
	if err != nil {
		return nil, g.fanoutsAway(err, y.ID)
	}
	y.chunk(p, user, ended)
	a := &asked{text: y.ID, id: fanout.ID(id, user)}
	if err := g.read(ctx, []*asked{a}, func(a *asked) string { return a.id }); err != nil {
		return nil, g.rowsAway(err)
	}
	if a.rows, _ = push.OwnRows(a.rows, push.UserHash(user)); len(a.rows) > 0 {
		y.Notification = a.id
		g.tell(y, g.judge(a, now).report, a.rows)
		return y, g.tellReported(ctx, y, j.App)
	}
	g.whyNothing(y, p, member, ended, a.id, now)
	return y, nil
}

// member adds the steps of the message and of what the user has to do with its audience.
func (g *Gateway) member(ctx context.Context, y *Why, p *fanout.Progress, user string) (member, *Problem) {
	j := p.Job
	switch j.To.Kind {
	case fanout.OfApp:
		y.step(stepMessage, progressOf(p), j.Accepted, fmt.Sprintf("accepted for all users of app %s, in lane %s", j.App, j.Lane))
		return g.uses(ctx, y, j, user)
	case fanout.OfSegment:
		y.step(stepMessage, progressOf(p), j.Accepted, fmt.Sprintf("accepted for the users of app %s in segment %s, in lane %s", j.App, j.To.Name, j.Lane))
		return g.uses(ctx, y, j, user)
	}
	if g.o.Topics == nil {
		return member{}, noTopics()
	}
	y.step(stepMessage, progressOf(p), j.Accepted, fmt.Sprintf("accepted for the subscribers of topic %s, in lane %s", j.To.Name, j.Lane))
	s, err := g.o.Topics.Subscription(ctx, j.To.Name, user)
	if err != nil {
		return member{}, g.topicsProblem(err)
	}
	return y.subscribed(&s, j.Accepted), nil
}

// progressOf is the state of a fan-out that has begun, as receipts have it.
func progressOf(p *fanout.Progress) string {
	if p.State != fanout.Cancelled && len(p.Ended) == p.Job.To.Parts {
		return fanoutEnded
	}
	return p.State.String()
}

// member is what a subscription, as it is now, says about a message that was accepted
// before.
type member struct {
	reason  string // why he gets none; empty = he gets one
	certain bool   // it was so whenever his page was read
	meaning string
}

// subscribed adds the step of the subscription. A page is read some time after the message
// was accepted, and only the latest joining and leaving are kept.
func (y *Why) subscribed(s *subscriptions.Subscription, accepted time.Time) member {
	left := s.Left.After(accepted)
	m, at := member{}, s.Since
	switch {
	case s.Mode == subscriptions.Left && s.Since.IsZero() && s.Left.IsZero():
		m = member{"not_subscribed", true, "never subscribed to the topic"}
	case s.Mode == subscriptions.Left && !left:
		m, at = member{fanout.SkipLeft.String(), true, "had left the topic before the message was accepted"}, s.Left
	case s.Mode == subscriptions.Left && s.Since.After(accepted):
		m, at = member{fanout.SkipLater.String(), false, "subscribed after the message was accepted, and has left since"}, s.Left
	case s.Mode == subscriptions.Left:
		m, at = member{fanout.SkipLeft.String(), false, "left the topic after the message was accepted: there is a notification if the subscription was read before that"}, s.Left
	case s.Since.After(accepted) && left:
		m = member{fanout.SkipLater.String(), false, "left the topic after the message was accepted, and subscribed again"}
	case s.Since.After(accepted):
		m = member{fanout.SkipLater.String(), true, "subscribed after the message was accepted"}
	case s.Mode == subscriptions.Pull:
		m = member{fanout.SkipPull.String(), false, "fetches messages of the topic, and is not pushed; if that is new, there may be a notification"}
	default:
		m = member{"", true, "had subscribed when the message was accepted"}
	}
	y.step(stepSubscription, s.Mode.String(), at, m.meaning).Reason = m.reason
	return m
}

// chunk adds the step of the part of the audience that the user is in.
func (y *Why) chunk(p *fanout.Progress, user string, ended bool) {
	of := fmt.Sprintf("part %d of %d of the audience, which the user is in, ", p.Job.To.PartOf(user)+1, p.Job.To.Parts)
	switch {
	case ended && p.State == fanout.Cancelled: // a part that was stopped has ended too
		y.step(stepChunk, "done", time.Time{}, of+"has been worked on, to its end or until the message was cancelled")
	case ended:
		y.step(stepChunk, "done", time.Time{}, of+"has been worked on")
	case p.State == fanout.Running:
		y.step(stepChunk, "waiting", time.Time{}, of+"has not been worked on to its end")
	default:
		y.step(stepChunk, p.State.String(), time.Time{}, of+"has not been worked on to its end when the message was "+p.State.String())
	}
}

// whyNothing ends the answer about a user whose notification has no state.
func (g *Gateway) whyNothing(y *Why, p *fanout.Progress, m member, ended bool, id string, now time.Time) {
	since := now.Sub(p.Job.Accepted)
	if m.reason == reasonNoSegment && !ended { // it is still to be asked
		m.reason = ""
	}
	switch {
	case m.certain && m.reason != "", ended && (m.reason == fanout.SkipPull.String() || m.reason == reasonNoMember):
		g.notSent(y, m.reason, m.meaning)
	case m.reason != "":
		g.unfinished(y, statusUnknown, m.reason, m.meaning+"; it has no state so far", since)
	case p.State == fanout.Cancelled:
		g.unfinished(y, statusUnknown, p.State.String(), "the message was cancelled: who had no notification by then gets none, and there is no state of one so far", since)
	case !ended && p.State == fanout.Paused:
		g.unfinished(y, statusPending, p.State.String(), "the message is paused, and the user's part of the audience waits", since)
	case !ended:
		g.unfinished(y, statusPending, "", "the user's part of the audience waits to be worked on", since)
	case p.Skipped[fanout.SkipExpired] > 0 || !now.Before(p.Job.Expires):
		g.unfinished(y, statusUnknown, fanout.SkipExpired.String(), "for some receivers the message had expired before their page was read; this user has no state so far", since)
	default:
		y.Notification = id
		g.unfinished(y, statusPending, "", "the notification is in the lane, and no worker has finished with it", since)
	}
}
