package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// stamps gives each request that changes subscriptions a time of its own, so that of two at
// one gateway the later one stands, also within a microsecond and if the clock steps back.
// It is safe for concurrent use.
type stamps struct{ last atomic.Int64 } // in microseconds

func (s *stamps) next() time.Time {
	for {
		last := s.last.Load()
		now := max(last+1, time.Now().UnixMicro())
		if s.last.CompareAndSwap(last, now) {
			return time.UnixMicro(now).UTC()
		}
	}
}

// ofSubscriber lets those to the handler who may change subscriptions of the path's user:
// keys with the right, and tokens of the user.
func (g *Gateway) ofSubscriber(h userHandler) http.Handler {
	return open(func(w http.ResponseWriter, r *http.Request) *Problem {
		v, problem := g.visitor(r)
		switch {
		case problem != nil:
			return problem
		case g.o.Topics == nil:
			return noTopics()
		}
		return h(w, r, v)
	})
}

// sees reports whether it may see and change who has subscribed to a topic: of its apps, one
// that the key is for, and by a user's token only to an open one.
func (v *visitor) sees(topic, app string, security subscriptions.Security) bool {
	return v.caller.hasTopic(topic) && v.has(app) && (v.pass == nil || security == subscriptions.Open)
}

// theirs finds a topic for who may change subscriptions to it.
func (g *Gateway) theirs(ctx context.Context, name string, v *visitor) (*subscriptions.Topic, *Problem) {
	t, problem := g.topic(ctx, name, v.caller, v.has)
	if problem == nil && !v.sees(t.Name, t.App, t.Security) {
		return nil, noTopic()
	}
	return t, problem
}

// subscriptionForm is the body of PUT /v1/topics/{topic}/subscriptions/{user}, and a line of
// a batch.
type subscriptionForm struct {
	User     string `json:"user_id"`
	Mode     string `json:"mode"`
	Priority string `json:"priority"`
}

// The members of a subscription, and of a line of a batch.
var (
	subscriptionFields = []string{"mode", "priority"}
	lineFields         = []string{"user_id", "mode", "priority"}
)

// maxSubscription is the largest body of a subscription, in bytes: a user of 128, each an
// escape of six, and short words.
const maxSubscription = 2 << 10

// change is what the form asks of a topic. Without a mode it is push, if the topic has it.
func (f *subscriptionForm) change(t *subscriptions.Topic, at time.Time) (subscriptions.Change, *Problem) {
	c := subscriptions.Change{User: f.User, Mode: subscriptions.Pull, At: at}
	switch mode, ok := subscriptions.ParseMode(f.Mode); {
	case ok:
		c.Mode = mode
	case f.Mode != "":
		return c, newProblem(codeInvalidField, "mode: want push or pull").at("/mode")
	case t.Modes.Has(subscriptions.Push):
		c.Mode = subscriptions.Push
	}
	if f.Priority != "" {
		if c.Priority = priorityOf(f.Priority); c.Priority == 0 {
			return c, newProblem(codeInvalidField, "priority: want critical, high, medium, low or bulk").at("/priority")
		}
	}
	return c, nil
}

// theirSubscription is a subscription in an answer.
type theirSubscription struct {
	Line     int        `json:"line,omitempty"` // of a batch
	Topic    string     `json:"topic"`
	User     string     `json:"user_id"`
	Mode     string     `json:"mode"` // "left" = no more
	Priority string     `json:"priority,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	LeftAt   *time.Time `json:"left_at,omitempty"`
}

func ofSubscription(topic string, s *subscriptions.Subscription) theirSubscription {
	a := theirSubscription{Topic: topic, User: s.User, Mode: s.Mode.String()}
	if s.Priority != 0 {
		a.Priority = s.Priority.String()
	}
	if !s.Since.IsZero() {
		a.Since = &s.Since
	}
	if s.Mode == subscriptions.Left && !s.Left.IsZero() {
		a.LeftAt = &s.Left
	}
	return a
}

// subscribe answers PUT /v1/topics/{topic}/subscriptions/{user}.
func (g *Gateway) subscribe(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	var f subscriptionForm
	if problem := g.readObject(r, maxSubscription, &f, subscriptionFields); problem != nil {
		return problem
	}
	return g.changeOne(w, r, v, func(t *subscriptions.Topic, at time.Time) (subscriptions.Change, *Problem) {
		f.User = v.user
		return f.change(t, at)
	})
}

// leave answers DELETE /v1/topics/{topic}/subscriptions/{user}: 200 also if he was not there.
func (g *Gateway) leave(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
	return g.changeOne(w, r, v, func(_ *subscriptions.Topic, at time.Time) (subscriptions.Change, *Problem) {
		return subscriptions.Change{User: v.user, At: at}, nil
	})
}

// changeOne makes one change of the path's topic, and answers with what became of it.
func (g *Gateway) changeOne(w http.ResponseWriter, r *http.Request, v *visitor, change func(*subscriptions.Topic, time.Time) (subscriptions.Change, *Problem)) *Problem {
	at := g.stamps.next()
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	t, problem := g.theirs(ctx, r.PathValue("topic"), v)
	if problem != nil {
		return problem
	}
	c, problem := change(t, at)
	if problem != nil {
		return problem
	}
	result := g.o.Topics.Apply(ctx, t, []subscriptions.Change{c})[0]
	if problem := g.subscribed(&result); problem != nil {
		g.tellAway([]subscriptions.Result{result})
		return problem
	}
	answer(w, http.StatusOK, "application/json", ofSubscription(t.Name, &result.Subscription))
	return nil
}

// subscribed counts a change, and says what is wrong with it; nil = it is durable.
func (g *Gateway) subscribed(r *subscriptions.Result) *Problem {
	if r.Err == nil {
		g.o.Metrics.subscribed(resultAccepted)
		return nil
	}
	p := problemOfTopics(r.Err)
	result := "refused"
	if p.Code == codeTopicsAway {
		result = "unconfirmed"
	}
	g.o.Metrics.subscribed(result)
	return p
}

// tellAway logs the first change that the store did not make, and how many there are.
func (g *Gateway) tellAway(results []subscriptions.Result) {
	var first error
	away := 0
	for i := range results {
		if err := results[i].Err; err != nil && problemOfTopics(err).Code == codeTopicsAway {
			first, away = cmp.Or(first, err), away+1
		}
	}
	if away > 0 {
		g.o.Log.Warn("subscriptions cannot be changed", "changes", away, "error", first)
	}
}

// subscribeMany answers POST /v1/topics/{topic}/subscriptions/batch: 200 if all changes were
// made, else 207.
func (g *Gateway) subscribeMany(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	select {
	case g.joining <- struct{}{}:
		defer func() { <-g.joining }()
	default:
		return newProblem(codeBusy, "so many batches of subscriptions are under way that this one was not read").after(1)
	}
	b, problem := g.readSubscriptions(r)
	if problem != nil {
		return problem
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	t, problem := g.topic(ctx, r.PathValue("topic"), c, c.has)
	if problem != nil {
		return problem
	}
	g.changesOf(b, t, g.stamps.next())
	results := g.o.Topics.Apply(ctx, t, b.changes)
	for i := range results {
		b.lines[b.of[i]].result, b.lines[b.of[i]].problem = results[i].Subscription, g.subscribed(&results[i])
	}
	g.tellAway(results)
	b.answer(w, t.Name)
	return nil
}

// joinLine is a line of a batch of subscriptions.
type joinLine struct {
	number  int
	user    string // "" = it cannot be read
	form    subscriptionForm
	result  subscriptions.Subscription
	problem *Problem // nil = it is durable
}

// joinBatch is a batch of subscriptions.
type joinBatch struct {
	lines   []joinLine
	changes []subscriptions.Change
	of      []int // which line each of the changes is
}

// readSubscriptions reads the lines of a batch. A user may be in one line only: which of two
// stands should not be left to the order in which they are made.
func (g *Gateway) readSubscriptions(r *http.Request) (*joinBatch, *Problem) {
	body, problem := g.readBody(r, "application/x-ndjson", min(g.o.Limits.Batch, subscriptions.MaxChanges*maxSubscription), ofMany)
	if problem != nil {
		return nil, problem
	}
	defer g.bodies.give(body)
	lines, problem := g.lines(body.text)
	if problem != nil {
		return nil, problem
	}
	b := &joinBatch{lines: make([]joinLine, len(lines))}
	first := make(map[string]int, len(lines)) // the line that a user is in
	for i, l := range lines {
		one := &b.lines[i]
		one.number = l.number
		if one.problem = parseObject(l.text, &one.form, lineFields); one.problem != nil {
			continue
		}
		if one.problem = checkSubscriber(one.form.User); one.problem != nil {
			continue
		}
		one.user = one.form.User
		if line, twice := first[one.user]; twice {
			one.problem = newProblem(codeInvalidField, fmt.Sprintf("the user is in line %d already, and this one was not made", line)).at("/user_id")
			continue
		}
		first[one.user] = l.number
	}
	return b, nil
}

// changesOf makes changes of a batch's lines, as far as they are sound, and counts the others.
func (g *Gateway) changesOf(b *joinBatch, t *subscriptions.Topic, at time.Time) {
	for i := range b.lines {
		one := &b.lines[i]
		var c subscriptions.Change
		switch f := &one.form; {
		case one.problem != nil:
		case f.Mode != leftWord:
			c, one.problem = f.change(t, at)
		case f.Priority != "":
			one.problem = newProblem(codeInvalidField, "who leaves has no priority").at("/priority")
		default:
			c = subscriptions.Change{User: one.user, At: at}
		}
		if one.problem != nil {
			g.o.Metrics.subscribed("refused")
			continue
		}
		b.changes, b.of = append(b.changes, c), append(b.of, i)
	}
}

// leftWord is the mode of a line by which a user leaves.
var leftWord = subscriptions.Left.String()

// checkSubscriber is what is wrong with the user of a line.
func checkSubscriber(user string) *Problem {
	if err := subscriptions.CheckUser(user); err != nil {
		p := unfit(err)
		p.Errors = append(p.Errors, Fault{Pointer: "/user_id", Detail: p.Detail})
		return p
	}
	return nil
}

// failedJoin is a line that was not accepted.
type failedJoin struct {
	Line    int      `json:"line"`
	User    string   `json:"user_id,omitempty"`
	Problem *Problem `json:"problem"`
}

// answer answers with a result for each line, in their order.
func (b *joinBatch) answer(w http.ResponseWriter, topic string) {
	failed, again, status := 0, 0, http.StatusOK
	results := make([]any, len(b.lines))
	for i := range b.lines {
		one := &b.lines[i]
		if one.problem != nil {
			failed, again, status = failed+1, max(again, one.problem.RetryAfter), http.StatusMultiStatus
			results[i] = failedJoin{one.number, one.user, one.problem}
			continue
		}
		done := ofSubscription(topic, &one.result)
		done.Line = one.number
		results[i] = done
	}
	if again > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(again))
	}
	answer(w, status, "application/json", struct {
		Accepted int   `json:"accepted"`
		Failed   int   `json:"failed"`
		Results  []any `json:"results"`
	}{len(b.lines) - failed, failed, results})
}
