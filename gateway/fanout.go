package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// Fanouts are messages for many receivers: all subscribers of a topic, or all users of an app.
type Fanouts struct {
	// Records say how far they are, and take orders about them.
	Records fanout.Records
	// Partitions returns how many partitions the topic of a lane has, by its name.
	Partitions func(ctx context.Context, lane string) (int32, error)
	// Ages are the lanes' greatest ages of messages, by their names.
	Ages map[string]time.Duration
	// Audience is read to count what became of a message's receivers; nil = that is not told.
	Audience fanout.Audience
	// Users says who uses an app; nil = nothing is sent to all of them.
	Users AppUsers
	// Segments says which segments there are; nil = nothing is sent to users in one.
	Segments Segments
}

func noFanouts() *Problem {
	return newProblem(codeNotConfigured, "this gateway sends to no topics (gateway.fanout)")
}

// partsOf is into how many chunks the subscribers of a topic are divided: up to about
// 6,000 in each of a small topic, and 24,000 of a medium one.
func partsOf(size subscriptions.Size) int {
	switch size {
	case subscriptions.Small:
		return 16
	case subscriptions.Large:
		return fanout.Slices
	}
	return 256
}

// sendTopic answers POST /v1/topics/{topic}/messages: one job, for all subscribers.
func (g *Gateway) sendTopic(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	return g.sendMany(w, r, c, func(ctx context.Context) (*audience, *Problem) {
		t, problem := g.topic(ctx, r.PathValue("topic"), c, c.has)
		switch {
		case problem != nil:
			return nil, problem
		case !t.Publishes(c.Sender):
			return nil, newProblem(codeForbidden, "the topic names those who send to it, and this key's sender is none of them")
		case t.Security == subscriptions.Confidential && (g.o.Confidential == nil || g.o.Inbox == nil):
			return nil, newProblem(codeNotConfigured, "messages to confidential topics are read in inboxes, where they lie encrypted: this gateway has no inboxes, or no keys (gateway.confidential.keys_file)")
		}
		a := subscribersOf(t)
		if t.State != subscriptions.Opened {
			a.over = g.topicsProblem(subscriptions.ErrTopicClosed)
		}
		return a, nil
	})
}

// sendMany takes a message for an audience, which find finds: one job.
func (g *Gateway) sendMany(w http.ResponseWriter, r *http.Request, c *Caller, find func(context.Context) (*audience, *Problem)) *Problem {
	if g.o.Fanouts == nil {
		return noFanouts()
	}
	key, problem := idempotencyKey(r.Header)
	if problem != nil {
		return problem
	}
	// Half of the time at most is the audience's: Kafka has the rest, and the answer is in time.
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), min(g.o.Times.Status, g.o.Times.Confirm)/2)
	defer cancel()
	a, problem := find(ctx)
	if problem != nil {
		return problem
	}
	s := g.singles.Get().(*sending)
	s.caller, s.key, s.many, s.now = c, key, true, clock()
	e := s.add(0)
	if problem := g.readFanout(ctx, r, s, a, e); problem != nil {
		s.reuse(&g.singles)
		return problem
	}
	e.record.Traceparent = traceparent(r.Header)
	s.spent = time.Since(began)
	g.produce(r.Context(), s)
	tellLimits(w.Header(), s.standings)
	if e.problem == nil {
		g.warnOfRecipients(r.Context(), w.Header(), c)
	}
	return g.answerSingle(w, s, e)
}

// readFanout reads a message for an audience and makes the job of it, unless it was accepted before: what is
// wrong by now with a job does not matter to its repeat.
func (g *Gateway) readFanout(ctx context.Context, r *http.Request, s *sending, a *audience, e *entry) *Problem {
	body, problem := g.readBody(r, "application/json", g.o.Limits.Message, ofMessage)
	if problem != nil {
		return problem
	}
	defer g.bodies.give(body)
	whole, problem := a.complete(body.text)
	if problem == nil {
		problem = g.accept(&s.check, whole, &e.message)
	}
	if problem == nil {
		problem = nameJob(&s.check, a, &e.message)
	}
	if problem == nil && a.confidential {
		g.o.Confidential.sums(&e.message)
	}
	if problem == nil {
		g.recall(ctx, s)
		if e.problem != nil {
			return e.problem // which is counted
		}
	}
	if problem == nil && e.first == nil {
		problem = a.over
	}
	if problem == nil && e.first == nil {
		problem = g.makeJob(ctx, r, &s.check, a, &e.message)
	}
	if problem != nil {
		g.o.Metrics.refused(problem.Code)
	}
	return problem
}

// nameJob finds the id by which fan-outs know a message that was checked.
func nameJob(k *check, a *audience, m *message) *Problem {
	id, err := fanout.ParseMessageID(m.id)
	switch {
	case err == nil:
		m.fanout = fanout.MessageOf(id, k.caller.Sender, m.app, a.to.String())
		m.owner = owner{} // its receipt is that of a fan-out
		return nil
	case k.key != "":
		return newProblem(codeBadHeader, "for a message to many receivers the Idempotency-Key must be a UUIDv7: the ids of their notifications are made from its time")
	}
	return newProblem(codeInvalidField, err.Error()).at("/id").of(m.id)
}

// makeJob makes the job of a message that was checked, in place of its record.
func (g *Gateway) makeJob(ctx context.Context, r *http.Request, k *check, a *audience, m *message) *Problem {
	id := m.fanout
	var sealed []byte
	if a.confidential {
		var problem *Problem
		if sealed, problem = g.o.Confidential.seal(k, a, m); problem != nil {
			return problem
		}
	}
	j := &fanout.Job{Message: id, Sender: k.caller.Sender, App: m.app, ServiceType: m.lane.ServiceType, Lane: m.lane.Name, Topic: m.lane.Topic,
		Accepted: k.now, Expires: k.now.Add(g.o.Fanouts.Ages[m.lane.Name]), Campaign: id.String(), Priority: a.priority, Traceparent: traceparent(r.Header),
		To: a.to, Clicks: m.clicks, Rest: restOf(m.record.Value, id.String(), m.clicks), Sealed: sealed}
	if p := k.read.Priority; p != 0 {
		j.Priority = min(p, a.ceiling)
	}
	if at := k.read.ExpiresAt.UTC().Truncate(time.Millisecond); !k.read.ExpiresAt.IsZero() {
		if at.Before(j.Expires) {
			j.Expires = at
		}
		if g.o.Inbox != nil && a.pulled {
			j.Until = at
		}
	}
	if !j.Expires.After(j.Accepted) {
		return newProblem(codeInvalidField, "is past: nobody would get it").at("/expires_at").of(m.id)
	}
	var err error
	if j.Partitions, err = g.o.Fanouts.Partitions(ctx, m.lane.Name); err != nil {
		g.o.Log.Warn("Kafka does not say how many partitions a lane has", "lane", m.lane.Name, "error", err)
		return g.unconfirmed(m)
	}
	value, err := fanout.EncodeJob(j)
	if err != nil { // all that was looked at above is right, so that it is the size
		return refused(&push.Defect{Reason: push.TooLarge}).of(m.id)
	}
	m.record = Record{Topic: fanout.JobsTopic, Key: id[:], Value: value, At: k.now}
	return nil
}

// restOf is the part of a message that is the same for all receivers; they are counted by its
// id unless it says otherwise. Where they get click tokens, its data comes first.
func restOf(value []byte, id string, clicks bool) []byte {
	var first []byte
	rest := make([]byte, 0, len(value)+64)
	campaign := false
	members(value, func(name, whole, _ []byte) {
		switch string(name) {
		case memberID, memberUser, memberPriority, memberExpires:
			return
		case memberData:
			if clicks {
				return
			}
		case memberCampaign:
			campaign = true
		}
		rest = append(append(rest, whole...), ',')
	})
	if clicks {
		first = append(append(append(first, fanout.DataBegins...), dataOf(value)...), ',')
	}
	if !campaign {
		rest = append(appendQuoted(append(rest, `"campaign":`...), id), ',')
	}
	rest[len(rest)-1] = '}'
	return append(first, rest...)
}

// FanoutReport is how far a message for many receivers is.
type FanoutReport struct {
	State    string           `json:"state"`              // accepted, running, paused, cancelled, ended
	Audience string           `json:"audience,omitempty"` // topic, app or segment; empty = it has not begun
	Chunks   FanoutChunks     `json:"chunks"`
	Emitted  int64            `json:"emitted"`           // receivers who have a record in the lane
	Skipped  map[string]int64 `json:"skipped,omitempty"` // members who get none, by the reason
}

// FanoutChunks are the parts of an audience.
type FanoutChunks struct {
	All  int `json:"all"` // 0 = it has not begun
	Done int `json:"done"`
}

// The states of a fan-out that are not a fanout.State.
const (
	fanoutAccepted = "accepted"
	fanoutEnded    = "ended"
)

// isFanout reports whether a claim is that of a message for many receivers: all others
// have one.
func (c *claim) isFanout() bool { return c.owner == owner{} }

// fanout is the id by which fan-outs know the message: the receipt has it in place of the id
// of a topic of Kafka's, as it has no place in a lane.
func (c *claim) fanout() uuid.UUID { return c.topic }

// lookAtFanout makes the report of a message for many receivers. Of a bare id, which is that
// by which fan-outs know it, it may be nil: there is none, or one of other apps.
func (g *Gateway) lookAtFanout(ctx context.Context, c *Caller, a *asked, now time.Time) *found {
	id, err := uuid.Parse(a.id)
	if a.claim != nil {
		id, err = a.claim.fanout(), nil
	}
	switch {
	case g.o.Fanouts != nil && err == nil:
	case a.claim == nil:
		return nil
	default:
		return &found{problem: noFanouts().of(a.id)}
	}
	p, err := g.o.Fanouts.Records.Look(ctx, id)
	if err != nil {
		g.o.Log.Warn("fan-outs cannot be read", "error", err)
		return &found{problem: newProblem(codeStatusAway, "Cassandra does not say how far it is; it goes on").of(a.id).after(2)}
	}
	switch {
	case a.claim == nil && (p == nil || !c.hasJob(p.Job)):
		return nil
	case p != nil && !c.hasJob(p.Job):
		return &found{problem: noReceipt()}
	case p == nil && now.Sub(a.claim.at) > g.o.Times.Kept:
		return &found{problem: newProblem(codeGone, "it was accepted longer ago than is kept how far it came").of(a.id)}
	}
	r := reportOf(a)
	r.Receiver, r.State, r.Status = nil, push.StatePending.String(), statusPending
	r.Meaning, r.UpdatedAt = "in Kafka, and not begun", r.AcceptedAt
	r.Fanout = &FanoutReport{State: fanoutAccepted}
	if p != nil {
		g.reportProgress(r, p, now)
	}
	if !r.Final {
		r.next = pollAfter(now.Sub(r.AcceptedAt))
	}
	g.o.Metrics.receipt(r.Status)
	return &found{report: r}
}

// reportProgress says how far a fan-out is that has begun. Its status is never DELIVERED:
// that is said of single receivers, when Apple or Google has accepted a push.
func (g *Gateway) reportProgress(r *Report, p *fanout.Progress, now time.Time) {
	r.ServiceType, r.Lane, r.App, r.AcceptedAt = p.Job.ServiceType, p.Job.Lane, p.Job.App, p.Job.Accepted
	switch p.Job.To.Kind {
	case fanout.OfTopic:
		r.Topic = p.Job.To.Name
	case fanout.OfSegment:
		r.Segment = p.Job.To.Name
	}
	r.Fanout = &FanoutReport{State: p.State.String(), Audience: p.Job.To.Kind, Chunks: FanoutChunks{p.Job.To.Parts, len(p.Ended)}, Emitted: p.Emitted, Skipped: p.ByReason()}
	r.Status, r.State = statusSending, push.StateSending.String()
	switch {
	case p.State == fanout.Cancelled && !p.Settled && now.Before(p.Job.Expires):
		r.Meaning = "cancelled: parts that were open are still to be counted, and no others get a notification"
	case p.State == fanout.Cancelled: // also when all its parts have ended, as what was open does
		r.Final, r.Meaning = true, "cancelled: those receivers who are counted have a notification, and no others get one"
	case len(p.Ended) == p.Job.To.Parts:
		r.Fanout.State, r.Final, r.Meaning = fanoutEnded, true, "each receiver has a notification of its own in the lane"
	case p.State == fanout.Paused:
		r.Meaning = "paused: those receivers who are counted have a notification"
	default:
		r.Meaning = "receivers get their notifications into the lane, chunk by chunk"
	}
}

// order answers POST /v1/messages/{id}/cancel, pause and resume. {id} is a receipt, or the id
// by which fan-outs know the message, once it has begun.
func (g *Gateway) order(s fanout.State) handler {
	return func(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
		if g.o.Fanouts == nil {
			return noFanouts()
		}
		ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
		defer cancel()
		id, name, problem := g.ordered(ctx, c, r.PathValue("id"), s)
		if problem != nil {
			return problem
		}
		if err := g.o.Fanouts.Records.Order(ctx, id, s, time.Now()); err != nil {
			g.o.Log.Warn("an order about a fan-out is not noted", "error", err)
			return newProblem(codeStatusAway, "Cassandra did not answer in time. The order may hold: give it again, which does no harm").of(name).after(2)
		}
		answer(w, http.StatusAccepted, "application/json", ordered{ID: name, Order: s.String()})
		return nil
	}
}

// ordered is the answer to an order.
type ordered struct {
	ID    string `json:"id"`
	Order string `json:"order"` // running, paused, cancelled
}

// ordered finds the fan-out that an order is about, which must be the caller's and not be
// over, and the name that the caller has for it.
func (g *Gateway) ordered(ctx context.Context, c *Caller, text string, s fanout.State) (id uuid.UUID, name string, problem *Problem) {
	none := newProblem(codeNoReceipt, "no such fan-out of this sender and its apps; give its receipt")
	cl, own := g.o.Signer.open(c.Sender, text)
	var err error
	switch {
	case own && cl.isFanout() && c.apps[cl.app]:
		id, name = cl.fanout(), cl.id
	case own:
		return id, "", none
	default:
		name = text
		if id, err = fanout.ParseMessageID(text); err != nil {
			return id, "", none
		}
	}
	p, err := g.o.Fanouts.Records.Look(ctx, id)
	switch {
	case err != nil:
		g.o.Log.Warn("fan-outs cannot be read", "error", err)
		return id, "", newProblem(codeStatusAway, "Cassandra does not answer").of(name).after(2)
	case p == nil && own:
		return id, name, nil // it has not begun
	case p == nil, !own && p.Job.Sender != c.Sender && !c.may(Admin), !c.hasJob(p.Job):
		return id, "", none
	}
	if over := p.Takes(s); over != nil {
		return id, "", newProblem(codeFanoutOver, over.Error()).of(name)
	}
	return id, name, nil
}
