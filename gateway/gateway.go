// Package gateway is the way into the lanes for whoever speaks HTTP and not Kafka: it
// takes notifications, answers once Kafka has them, and tells what became of them.
//
//	gateway.go   START HERE: what it needs, and its routes
//	send.go      POST /v1/messages
//	batch.go     POST /v1/messages/batch
//	body.go      bodies, and the memory that all of them may take
//	message.go   a body checked as a worker would, and the record made of it
//	sending.go   messages of one request on their way to Kafka
//	repeats.go   repeats of what was accepted: the first receipt again
//	limits.go    limits of senders: what they stop, and GET /v1/limits
//	id.go        the id of a notification, and the time in it
//	idkey.go     ids derived from Idempotency-Keys, by a secret
//	receipts.go  GET /v1/receipts/…, POST /v1/receipts:query
//	claim.go     what a receipt says, signed
//	lookup.go    rows and committed offsets of receipts, in the order that proves
//	outcome.go   what they mean
//	recipient.go GET /v1/messages/{id}/recipients/{user}: why did a user (not) get it?
//	counts.go    GET /v1/messages/{id}/counts: what became of those of a message to many
//	progress.go  committed offsets, asked for once a second
//	users.go     who may ask about a user, and changes until Kafka has them
//	userlimits.go
//	             GET /v1/users/{user}/limits
//	preferences.go, devices.go
//	             GET, PUT, DELETE /v1/users/{user}/…
//	inbox.go     GET /v1/users/{user}/inbox, and waiting for something new
//	follows.go   the topics of which messages are in an inbox
//	inboxmarks.go
//	             POST /v1/users/{user}/inbox/marks, and cursors
//	unread.go    GET /v1/users/{user}/inbox/unread
//	fanout.go    POST /v1/topics/{topic}/messages, and orders about them
//	broadcast.go, segment.go
//	             POST /v1/apps/{app}/messages and …/segments/{group}/{segment}/messages
//	crowds.go    GET /v1/topics/{topic}/counts
//	topic_messages.go
//	             GET /v1/topics/{topic}/messages
//	renewed.go   counts that serve all who ask for some seconds
//	topics.go    PUT, GET, DELETE /v1/topics/{topic}, and who may
//	subscriptions.go, subscribers.go
//	             …/subscriptions: of a topic, of a user, many at once
//	usertoken.go POST /v1/users/{user}/tokens, and what a user may do by one
//	unsubscribe.go
//	             POST /u/{token}, one click in a mail (RFC 8058), and links for it
//	clicktoken.go
//	             tokens in what is pushed, by which apps report clicks
//	clicks.go    POST /v1/events, and GET /v1/users/{user}/clicks
//	journal.go   GET /v1/users/{user}/messages
//	clickbatch.go
//	             POST /v1/events/batch
//	object.go    bodies that are one JSON object, read strictly
//	callers.go   who may do what, by their keys
//	fleet.go     who may see the dashboard of the whole fleet, and act there
//	problem.go   answers that are none (RFC 9457)
//	server.go    connections and requests, bounded
//	openapi.yaml the contract, served and tested; gateway/viewer shows it as a page
//
// It holds nothing of its own: what it has answered 202 is in Kafka, and a repeat is
// recognised by its id: by the workers always, and by any gateway for as long as Redis has
// where the first record is (package firsts). Redis is read for users, and has what senders
// have used of their limits (package quota); topics are in Cassandra.
package gateway

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/gateway/viewer"
	"github.com/pushfleet/pushfleet/push"
)

// Producer writes records to lanes' topics.
type Producer interface {
	// Produce takes a record and returns at once. done is called once, and must not
	// block: with the record's place when all in-sync replicas have it, or with an
	// error, after which it may have been written all the same, unless it is
	// ErrBufferFull. The record's slices must not change until then.
	Produce(r Record, done func(Place, error))
}

// ErrBufferFull is a Producer's error for a record that it has not taken.
var ErrBufferFull = errors.New("too many records wait for Kafka")

// Record is what becomes of a message in Kafka.
type Record struct {
	Topic       string
	Key, Value  []byte
	Traceparent string // a header of this name; empty = none
	Admitted    bool   // it was counted under the limits of its sender
	At          time.Time
}

// Place is where a record is in its topic.
type Place struct {
	Partition int32
	Offset    int64 // -1 = the broker did not say
}

// Progress is how far the workers have come in a lane's topic.
type Progress struct {
	Topic     [16]byte        // the topic's id; zero = not known
	Committed map[int32]int64 // by partition; a missing one has no commit
}

// Offsets tells of a lane, by its name, the id of its topic, and how far the workers
// are. All of that must be known, or it is an error. The id is asked for apart: it is
// known as soon as the topic is, and no send should need the group's coordinator.
type Offsets interface {
	Topic(ctx context.Context, lane string) ([16]byte, error)
	Progress(ctx context.Context, lane string) (Progress, error)
}

// Rows is the status store.
type Rows interface {
	// Read returns the rows of each id, aligned with ids; nil for one without rows.
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// Lane is where the messages of a service type and mode go.
type Lane struct {
	Name        string
	Topic       string
	ServiceType string
	Mode        Mode
}

// Limits bound what callers can make a gateway hold. All must be above 0.
type Limits struct {
	Message  int // bytes of the body of one message, or of preferences
	Lines    int // messages of a batch
	Batch    int // bytes of a batch
	Query    int // receipts of a query
	Requests int // under way at once
	Batches  int // of these, batches; and as many queries of receipts
}

// leastBodies is the least that bodies under way may take together, in bytes.
const leastBodies = 32 << 20

// bodies is what bodies under way may take together, in bytes: more than the largest
// takes while it is read, also beside what is left to others (budget.most).
func (l *Limits) bodies() int64 {
	return int64(max(leastBodies, 4*max(l.Message, l.Batch, l.queryBytes())))
}

// queryBytes is how many bytes a query's body may have.
func (l *Limits) queryBytes() int { return l.Query*(maxReceipt+8) + 64 }

// Times are how long things take, or are kept.
type Times struct {
	Confirm time.Duration // for Kafka to confirm a record
	Status  time.Duration // for the status store and Kafka's offsets to answer
	Kept    time.Duration // how long the status store keeps rows
	Delay   time.Duration // of the last retry tier
}

// Options are what a Gateway is made of. All but Users, UserLimits, Topics, Fanouts, Inbox, Confidential,
// Clicks, Journal, Quotas, Firsts, Recipients and Chance are required.
type Options struct {
	Producer     Producer
	Offsets      Offsets
	Rows         Rows
	Callers      *Callers
	Signer       *Signer
	Users        *Users            // nil = users are neither changed nor read
	UserLimits   UserLimits        // how limits stand for users; nil = that is not told
	Quotas       *quota.Quotas     // what senders may send; nil = as much as they like
	Firsts       Firsts            // where the first records of messages are; nil = a repeat is written again
	Recipients   *quota.Recipients // how many receivers their messages to topics may have, to be told; nil = as many as there are
	Chance       func() float64    // from 0 to 1, not 1 itself, for times to come again; nil = at random
	Topics       Topics            // nil = there are none
	Fanouts      *Fanouts          // nil = nothing is sent to topics
	Inbox        *Inbox            // nil = there are no inboxes
	Confidential *Confidential     // nil = nothing is sent to confidential topics
	Clicks       *Clicks           // nil = messages get no click tokens, and nothing is reported
	Journal      *Journal          // nil = messages are not found by user
	Lanes        []Lane            // of one service type in the order of preference; a lane may be there more than once
	Apps         []string          // that the workers are configured for
	Limits       Limits
	Times        Times
	Metrics      *Metrics
	Log          *slog.Logger
}

// Gateway answers requests. It is safe for concurrent use.
type Gateway struct {
	o        Options
	mux      *http.ServeMux
	apps     map[string]string // each under its own name
	routes   map[route]*lane
	first    map[string]*lane // of a service type: for who names no mode
	lanes    map[string]*lane // by their names
	services []string         // in the order of Lanes
	ids      idKeys           // from which ids are derived
	progress *progress
	counts   *renewed[uuid.UUID, StateCounts]
	crowds   *renewed[string, SubscriberCounts] // by topic
	requests chan struct{}                      // a place for each request under way
	woken    chan struct{}                      // a place for each of these that has waited for something new
	batches  chan struct{}                      // and for each batch
	queries  chan struct{}                      // and for each query of receipts: as many as batches
	chance   func() float64
	joining  chan struct{} // and for each batch of subscriptions: as many again
	stamps   stamps        // of changes of subscriptions
	clicking chan struct{} // a place for each click on a link to unsubscribe
	intake   *intake
	seed     maphash.Seed
	turns    [64]chan struct{} // of users by a hash, capacity 1: who changes one by what he reads has one in it
	bodies   budget
	// Each of *sending that nobody uses: of one message, and of batches.
	singles, many sync.Pool
	texts         sync.Pool // of *[]byte: memory for answers to queries

	endpoints map[string]*endpoint // by pattern
	fixed     map[string]*endpoint // those without wildcards, by path
	other     *endpoint            // of requests that no route takes
}

// lane is a Lane with what is made only once.
type lane struct {
	*Lane
	says     []byte // of answers: what is the same in each
	accepted prometheus.Counter
}

func newLane(l *Lane, m *Metrics) *lane {
	says := saysOf(&claim{mode: l.Mode, service: l.ServiceType, lane: l.Name})
	return &lane{Lane: l, says: says, accepted: m.messages.WithLabelValues(l.Name, resultAccepted)}
}

// saysOf is what an answer says of a message that was accepted, up to the time.
func saysOf(c *claim) []byte {
	says := appendQuoted([]byte(`,"status":"`+statusPending+`","mode":`), string(c.mode))
	says = appendQuoted(append(says, `,"service_type":`...), c.service)
	says = appendQuoted(append(says, `,"lane":`...), c.lane)
	return append(says, `,"accepted_at":"`...)
}

// route is what a caller chooses a lane by.
type route struct {
	service string
	mode    Mode
}

// New makes a Gateway.
func New(o Options) *Gateway {
	g := &Gateway{o: o, mux: http.NewServeMux(), apps: make(map[string]string), routes: make(map[route]*lane), first: make(map[string]*lane), lanes: make(map[string]*lane),
		progress: newProgress(o.Offsets, o.Times.Status), counts: newRenewed[uuid.UUID, StateCounts](countedAge), crowds: newRenewed[string, SubscriberCounts](crowdAge),
		seed: maphash.MakeSeed(), requests: make(chan struct{}, o.Limits.Requests), woken: make(chan struct{}, max(o.Limits.Requests/wokenShare, 1)), batches: make(chan struct{}, o.Limits.Batches), queries: make(chan struct{}, o.Limits.Batches), joining: make(chan struct{}, o.Limits.Batches),
		clicking:  make(chan struct{}, max(o.Limits.Requests/keylessShare, 1)),
		intake:    newIntake(o.Limits.Requests, o.Clicks),
		endpoints: make(map[string]*endpoint), fixed: make(map[string]*endpoint), other: newEndpoint("other", nil, o.Metrics)}
	g.bodies.limit = o.Limits.bodies()
	g.singles.New = func() any { return newSending() }
	g.many.New = g.singles.New
	g.texts.New = func() any { return new([]byte) }
	if o.Signer != nil {
		g.ids = o.Signer.ids
	}
	if g.chance = o.Chance; g.chance == nil {
		g.chance = rand.Float64
	}
	for i := range g.turns {
		g.turns[i] = make(chan struct{}, 1)
	}
	for _, app := range o.Apps {
		g.apps[app] = app
	}
	for i := range o.Lanes {
		l := newLane(&o.Lanes[i], o.Metrics)
		if g.first[l.ServiceType] == nil {
			g.first[l.ServiceType] = l
			g.services = append(g.services, l.ServiceType)
		}
		g.routes[route{l.ServiceType, l.Mode}], g.lanes[l.Name] = l, l
	}
	reading := make(chan struct{}, max(o.Limits.Requests/keylessShare, 1)) // a place for each who reads the contract
	g.route("GET /openapi.yaml", bounded(reading, http.HandlerFunc(serveContract)))
	for pattern, h := range viewer.Routes() {
		g.route(pattern, bounded(reading, h))
	}
	for pattern, h := range g.handlers() {
		g.route(pattern, h)
	}
	return g
}

// knows reports whether there is an app of that name.
func (g *Gateway) knows(app string) bool {
	_, known := g.apps[app]
	return known
}

func (g *Gateway) route(pattern string, h http.Handler) {
	g.mux.Handle(pattern, h)
	e := newEndpoint(pattern, h, g.o.Metrics)
	g.endpoints[pattern] = e
	if e.fixed {
		g.fixed[e.path] = e
	}
}

// handlers are the routes for callers with a key, or a token of a user.
func (g *Gateway) handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"POST /v1/messages":          g.authorized(Send, g.send),
		"POST /v1/messages/batch":    g.authorized(Send, g.sendBatch),
		"GET /v1/receipts/{receipt}": g.authorized(Read, g.receipt),
		"POST /v1/receipts:query":    g.authorized(Read, g.query),
		"GET /v1/limits":             g.authorized(anyRight, g.limits),

		"GET /v1/messages/{id}/counts":            g.authorized(Read, g.countStates),
		"GET /v1/messages/{id}/recipients/{user}": g.authorized(Read, g.recipient),

		"GET /v1/users/{user}/preferences":         g.ofUser(g.preferences),
		"PUT /v1/users/{user}/preferences":         g.ofUser(g.setPreferences),
		"GET /v1/users/{user}/devices":             g.ofUser(g.devices),
		"PUT /v1/users/{user}/devices":             g.ofUser(g.setDevice),
		"GET /v1/users/{user}/devices/{device}":    g.ofUser(g.device),
		"PUT /v1/users/{user}/devices/{device}":    g.ofUser(g.setDevice),
		"DELETE /v1/users/{user}/devices/{device}": g.ofUser(g.removeDevice),
		"GET /v1/users/{user}/limits":              g.ofUser(g.limitsOfUser),
		"GET " + inboxPath:                         g.ofInbox(g.showInbox),
		"GET /v1/users/{user}/inbox/unread":        g.ofInbox(g.unread),
		"POST /v1/users/{user}/inbox/marks":        g.ofInbox(g.markInbox),
		"POST /v1/users/{user}/tokens":             g.byKey(g.makePass),
		"POST /v1/users/{user}/unsubscribe-links":  g.byKey(g.makeLink),
		"POST /u/{token}":                          bounded(g.clicking, open(g.unsubscribe)),
		"POST /v1/events":                          open(g.report),
		"POST /v1/events/batch":                    open(g.reportMany),
		"GET /v1/users/{user}/clicks":              open(g.clickCounts),
		"GET /v1/users/{user}/messages":            open(g.messagesOfUser),

		"GET /v1/topics":                g.ofTopics(nil, g.listTopics),
		"POST /v1/topics":               g.ofTopics([]Right{Send}, g.createTopic),
		"GET /v1/topics/{topic}/counts": g.ofTopics(nil, g.countSubscribers),
		"PUT /v1/topics/{topic}":        g.ofTopics([]Right{Send}, g.createTopic),
		"GET /v1/topics/{topic}":        g.ofTopics(nil, g.showTopic),
		"DELETE /v1/topics/{topic}":     g.ofTopics([]Right{Send, Admin}, g.closeTopic),

		"GET /v1/topics/{topic}/messages":                         g.ofTopics([]Right{Read}, g.listMessages),
		"POST /v1/topics/{topic}/messages":                        g.ofTopics([]Right{Send}, g.sendTopic),
		"POST /v1/apps/{app}/messages":                            g.authorized(Broadcast, g.broadcast),
		"POST /v1/apps/{app}/segments/{group}/{segment}/messages": g.authorized(Broadcast, g.sendSegment),
		"POST /v1/messages/{id}/cancel":                           g.authorizedBy([]Right{Send, Broadcast}, g.order(fanout.Cancelled)),
		"POST /v1/messages/{id}/pause":                            g.authorizedBy([]Right{Send, Broadcast}, g.order(fanout.Paused)),
		"POST /v1/messages/{id}/resume":                           g.authorizedBy([]Right{Send, Broadcast}, g.order(fanout.Running)),

		"GET /v1/topics/{topic}/subscriptions":           g.ofTopics([]Right{Manage}, g.subscribers),
		"POST /v1/topics/{topic}/subscriptions/batch":    g.ofTopics([]Right{Manage}, g.subscribeMany),
		"PUT /v1/topics/{topic}/subscriptions/{user}":    g.ofSubscriber(g.subscribe),
		"DELETE /v1/topics/{topic}/subscriptions/{user}": g.ofSubscriber(g.leave),
		"GET /v1/users/{user}/subscriptions":             g.ofSubscriber(g.topicsOfUser),
	}
}

// keylessShare is the part of the requests that may be under way that each kind may be for
// which nobody needs a key: who is slow with them leaves room for sends.
const keylessShare = 4

// bounded lets requests to the handler as long as there are places.
func bounded(places chan struct{}, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			h.ServeHTTP(w, r)
		default:
			newProblem(codeBusy, "so many such requests are under way that this one was not looked at").after(1).write(w)
		}
	})
}

// handler answers the request of a caller. A problem that it returns is its answer.
type handler func(w http.ResponseWriter, r *http.Request, c *Caller) *Problem

// open lets everybody to the handler.
func open(h func(http.ResponseWriter, *http.Request) *Problem) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if problem := h(w, r); problem != nil {
			problem.write(w)
		}
	})
}

// authorized lets callers with a right to the handler, or all whose key is known.
func (g *Gateway) authorized(right Right, h handler) http.Handler {
	return g.authorizedBy([]Right{right}, h)
}

// authorizedBy is authorized for callers with one of some rights.
func (g *Gateway) authorizedBy(rights []Right, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, problem := g.o.Callers.of(r)
		if problem == nil && rights[0] != anyRight && !slices.ContainsFunc(rights, c.may) {
			problem = newProblem(codeForbidden, "this key does not have the right "+string(rights[0]))
		}
		if problem == nil {
			problem = h(w, r, c)
		}
		if problem != nil {
			problem.write(w)
		}
	})
}
