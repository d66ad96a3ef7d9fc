package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// Topics keeps topics, which here are subjects and none of Kafka's, and who has subscribed
// to them. It is safe for concurrent use.
type Topics interface {
	Create(ctx context.Context, t *subscriptions.Topic) (made subscriptions.Topic, created bool, err error)
	Topic(ctx context.Context, name string) (subscriptions.Topic, error)
	Close(ctx context.Context, name string) (subscriptions.Topic, error)
	Topics(ctx context.Context, apps []string, after string, limit int) ([]subscriptions.Topic, error)
	Apply(ctx context.Context, t *subscriptions.Topic, changes []subscriptions.Change) []subscriptions.Result
	Run(ctx context.Context, topic string, l subscriptions.Layout, first, last int, after subscriptions.Position, limit int) ([]subscriptions.Subscription, subscriptions.Position, bool, error)
	OfUser(ctx context.Context, user, after string, limit int) ([]subscriptions.Membership, error)
	Subscription(ctx context.Context, topic, user string) (subscriptions.Subscription, error)
}

// ofTopics lets callers to the handler who have one of the rights; nil = any. Who sees a
// topic is another matter: a key sees those of its apps.
//
// Send makes topics: who may send to each user of an app may send to them by a subject.
// Nothing is reached by it that is not reached without. Manage changes who has subscribed,
// as it changes preferences and devices.
func (g *Gateway) ofTopics(rights []Right, h handler) http.Handler {
	return open(func(w http.ResponseWriter, r *http.Request) *Problem {
		c, problem := g.o.Callers.of(r)
		switch {
		case problem != nil:
			return problem
		case rights != nil && !slices.ContainsFunc(rights, c.may):
			return newProblem(codeForbidden, "this key does not have the right "+string(rights[0]))
		case g.o.Topics == nil:
			return noTopics()
		}
		return h(w, r, c)
	})
}

func noTopics() *Problem {
	return newProblem(codeNotConfigured, "this gateway has no topics (gateway.topics)")
}

// topicForm is the body of PUT /v1/topics/{topic}.
type topicForm struct {
	Name     string   `json:"name"`
	App      string   `json:"app"`
	Service  string   `json:"service_type"`
	Metadata metadata `json:"metadata"`
	Modes    []string `json:"modes"`
	Size     string   `json:"size"`
}

type metadata struct {
	Priority   string   `json:"priority"`
	Security   string   `json:"security"`
	Publishers []string `json:"publishers,omitempty"`
}

var topicFields = []string{"name", "app", "service_type", "metadata", "priority", "security", "publishers", "modes", "size"}

// maxTopicForm is the largest body of a topic, in bytes.
const maxTopicForm = 8 << 10

// topic is what the form says; what it leaves out is as usual.
func (f *topicForm) topic() (subscriptions.Topic, *Problem) {
	t := subscriptions.Topic{Name: f.Name, App: f.App, Service: f.Service,
		Priority: push.Medium, Security: subscriptions.Open, Modes: subscriptions.ModesOf(subscriptions.Push), Size: subscriptions.Medium}
	if f.Metadata.Priority != "" {
		t.Priority = priorityOf(f.Metadata.Priority)
	}
	if f.Metadata.Security != "" {
		t.Security, _ = subscriptions.ParseSecurity(f.Metadata.Security)
	}
	t.Publishers = slices.Clone(f.Metadata.Publishers)
	slices.Sort(t.Publishers) // one that is there twice is refused
	if f.Size != "" {
		t.Size, _ = subscriptions.ParseSize(f.Size)
	}
	if f.Modes != nil {
		t.Modes = 0
		for _, word := range f.Modes {
			mode, ok := subscriptions.ParseMode(word)
			if !ok || t.Modes.Has(mode) {
				t.Modes = 0 // refused: no word twice, and none that is not known
				break
			}
			t.Modes |= subscriptions.ModesOf(mode)
		}
	}
	if err := t.Check(); err != nil { // what was not understood is zero, which is refused
		return t, unfit(err)
	}
	return t, nil
}

// priorityOf finds a priority by its word; 0 = none has it.
func priorityOf(word string) push.Priority {
	for p := push.Bulk; p <= push.Critical; p++ {
		if p.String() == word {
			return p
		}
	}
	return 0
}

// unfit is the problem of a topic or a subscription that breaks rules. err is an
// *InvalidError.
func unfit(err error) *Problem {
	var invalid *subscriptions.InvalidError
	if !errors.As(err, &invalid) {
		return newProblem(codeBadRequest, "not what the route takes")
	}
	var words []string
	for _, f := range invalid.Faults {
		words = append(words, strings.ReplaceAll(f.Field, "/", ".")+": "+f.Rule)
	}
	p := newProblem(codeInvalidField, strings.Join(words, "; "))
	for _, f := range invalid.Faults {
		if f.Field != "user" && f.Field != "name" { // they are of the path, or the caller says where
			p.Errors = append(p.Errors, Fault{Pointer: "/" + f.Field, Detail: f.Rule})
		}
	}
	return p
}

// theirTopic is a topic in an answer.
type theirTopic struct {
	Name      string     `json:"name"`
	App       string     `json:"app"`
	Service   string     `json:"service_type"`
	Metadata  metadata   `json:"metadata"`
	Modes     []string   `json:"modes"`
	Size      string     `json:"size"`
	State     string     `json:"state"`
	CreatedBy string     `json:"created_by"`
	CreatedAt time.Time  `json:"created_at"`
	ClosedAt  *time.Time `json:"closed_at,omitempty"`
	Version   int        `json:"version"`

	// Of a topic that is asked for with them; nil = they were not.
	Counts   *SubscriberCounts `json:"counts,omitempty"`
	Messages *theirMessages    `json:"messages,omitempty"`
}

func ofTopic(t *subscriptions.Topic) theirTopic {
	a := theirTopic{Name: t.Name, App: t.App, Service: t.Service, Metadata: metadata{t.Priority.String(), t.Security.String(), t.Publishers}, Modes: t.Modes.Words(),
		Size: t.Size.String(), State: t.State.String(), CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt, Version: t.Version}
	if !t.ClosedAt.IsZero() {
		a.ClosedAt = &t.ClosedAt
	}
	return a
}

// createTopic answers PUT /v1/topics/{topic} and POST /v1/topics: 201 if it has made it, 200
// if it was there as the body says.
func (g *Gateway) createTopic(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	var f topicForm
	if problem := g.readObject(r, maxTopicForm, &f, topicFields); problem != nil {
		return problem
	}
	if named := r.PathValue("topic"); named != "" {
		if f.Name != "" && f.Name != named {
			return newProblem(codeInvalidField, "another name than the one of the path").at("/name")
		}
		f.Name = named
	}
	t, problem := f.topic()
	switch {
	case problem != nil:
		if err := subscriptions.CheckName(f.Name); err != nil && r.PathValue("topic") == "" {
			problem.Errors = append(problem.Errors, Fault{Pointer: "/name", Detail: unfit(err).Detail})
		}
		return problem
	case !c.apps[t.App]:
		return newProblem(codeForeignApp, "this key is not for the app").at("/app")
	case !c.hasTopic(t.Name):
		return newProblem(codeForbidden, "this key is not for topics of that name")
	case !g.knows(t.App):
		return refused(&push.Defect{Reason: push.UnknownApp, Field: "app"})
	case g.first[t.Service] == nil:
		return newProblem(codeInvalidField, "want one of the service types "+strings.Join(g.services, ", ")).at("/service_type")
	}
	t.CreatedBy = c.Sender
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	made, created, err := g.o.Topics.Create(ctx, &t)
	if err != nil {
		return g.topicsProblem(err)
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	answer(w, status, "application/json", ofTopic(&made))
	return nil
}

// topic finds a topic of the caller's, and of apps that he has. One of others is none to him.
func (g *Gateway) topic(ctx context.Context, name string, c *Caller, has func(app string) bool) (*subscriptions.Topic, *Problem) {
	if !c.hasTopic(name) {
		return nil, noTopic()
	}
	t, err := g.o.Topics.Topic(ctx, name)
	switch {
	case err != nil:
		return nil, g.topicsProblem(err)
	case !has(t.App):
		return nil, noTopic()
	}
	return &t, nil
}

func noTopic() *Problem {
	return newProblem(codeNoTopic, "there is no such topic, or it is none of this key's topics and apps")
}

// topicsProblem is the problem of what a store answers, which is logged if it is its fault.
func (g *Gateway) topicsProblem(err error) *Problem {
	p := problemOfTopics(err)
	if p.Code == codeTopicsAway {
		g.o.Log.Warn("topics cannot be read or changed", "error", err)
	}
	return p
}

func problemOfTopics(err error) *Problem {
	var invalid *subscriptions.InvalidError
	switch {
	case errors.As(err, &invalid):
		return unfit(err)
	case errors.Is(err, subscriptions.ErrNoTopic):
		return noTopic()
	case errors.Is(err, subscriptions.ErrConflict):
		return newProblem(codeTopicTaken, "there is a topic of that name with other settings, maybe of another app; settings do not change")
	case errors.Is(err, subscriptions.ErrTopicClosed):
		return newProblem(codeTopicClosed, "the topic is closed, and is not opened again")
	case errors.Is(err, subscriptions.ErrTooMany):
		return newProblem(codeManyTopics, "the user has subscribed to as many topics as one may: leave another one first")
	}
	return newProblem(codeTopicsAway, "Cassandra did not answer in time. A change may have been made: send it again, which does no harm").after(2)
}

// What a topic may be asked for with.
const (
	withCounts   = "counts"
	withMessages = "messages"
)

// messagesWith is how many messages of a topic are told with it.
const messagesWith = 20

// showTopic answers GET /v1/topics/{topic}: its settings, and, if that is asked for with them,
// its subscribers' counts and its newest messages.
func (g *Gateway) showTopic(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	query, problem := queryOf(r, "with")
	if problem != nil {
		return problem
	}
	with := map[string]bool{}
	if query.Has("with") {
		for part := range strings.SplitSeq(query.Get("with"), ",") {
			if with[part] || part != withCounts && part != withMessages {
				return badPage("with: want counts, messages, or both with a comma between them")
			}
			with[part] = true
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	t, problem := g.topic(ctx, r.PathValue("topic"), c, c.has)
	if problem != nil {
		return problem
	}
	a := ofTopic(t)
	if with[withCounts] {
		if a.Counts, problem = g.countsOf(ctx, t); problem != nil {
			return problem
		}
	}
	if with[withMessages] {
		if g.o.Fanouts == nil {
			return noFanouts()
		}
		now := clock()
		newest, _ := messagePlace("", now)
		if a.Messages, problem = g.messagesOf(ctx, t, c, newest, messagesWith, now); problem != nil {
			return problem
		}
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}

// closeTopic answers DELETE /v1/topics/{topic}. It cannot be undone, so that a key needs
// more for it than to see the topic: to be of the sender who has made it, or the right admin.
func (g *Gateway) closeTopic(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	t, problem := g.topic(ctx, r.PathValue("topic"), c, c.has)
	if problem != nil {
		return problem
	}
	if !c.may(Admin) && t.CreatedBy != c.Sender {
		return newProblem(codeForbidden, "another sender has made the topic: closing it needs a key of his, or the right "+string(Admin))
	}
	closed, err := g.o.Topics.Close(ctx, t.Name)
	if err != nil {
		return g.topicsProblem(err)
	}
	answer(w, http.StatusOK, "application/json", ofTopic(&closed))
	return nil
}

// theirTopics are topics in an answer.
type theirTopics struct {
	Topics []theirTopic `json:"topics"`
	Next   string       `json:"next,omitempty"` // for after; "" = there are no more
}

// listTopics answers GET /v1/topics: those of the caller's apps that he is for, in the order of their names.
func (g *Gateway) listTopics(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	q, problem := pageOf(r, "after", "limit")
	if problem != nil {
		return problem
	}
	if q.after != "" && subscriptions.CheckName(q.after) != nil {
		return badPage("after: want the next of the page before")
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.o.Times.Status)
	defer cancel()
	apps := make([]string, 0, len(c.apps))
	for app := range c.apps {
		apps = append(apps, app)
	}
	a := theirTopics{Topics: make([]theirTopic, 0, q.limit)}
	atOnce := q.limit
	if len(c.topics) > 0 {
		atOnce = mostPage // most may be none of the key's
	}
	for after, end := q.after, false; !end && a.Next == ""; {
		list, err := g.o.Topics.Topics(ctx, apps, after, atOnce)
		if err != nil {
			return g.topicsProblem(err)
		}
		end = len(list) < atOnce
		for i := range list {
			if after = list[i].Name; !c.hasTopic(after) {
				continue // nor does next name it
			}
			if a.Topics = append(a.Topics, ofTopic(&list[i])); len(a.Topics) == q.limit {
				a.Next = after
				break
			}
		}
	}
	answer(w, http.StatusOK, "application/json", a)
	return nil
}
