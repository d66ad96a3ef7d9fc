package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// Options are a Pipeline's collaborators and numbers. All are required unless
// said otherwise.
type Options struct {
	Lane     string // its name in metrics and logs
	Source   Source
	Stages   []Stage // in order
	Routes   map[push.Route]Provider
	Producer Producer
	Status   Status
	Ledger   Ledger
	Seen     Seen
	Policy   Policy
	// Once is set for lanes of mode at_most_once: see sendOnce.
	Once bool

	// Gates are the gates of the worker's routes, shared by its lanes; nil = the
	// pipeline makes its own.
	Gates *gates.Gates
	// Urgent lets this lane's sends go before those of others where a route's rate is
	// short.
	Urgent bool
	// Limit is how fast the whole fleet sends, as far as this lane may; nil = as fast as it
	// can.
	Limit Limit
	// EarliestFirst has what waits for a route sent in the order of its expiry instead of
	// that of the log: see earliest. The source then tells trackers when they are full.
	EarliestFirst bool
	// Events, unless nil, gathers what push.events is to tell.
	Events Events
	// Ends, unless nil, makes what senders are told who want to know of every end.
	Ends Ends
	// Tracer, unless nil, follows the items that it chooses.
	Tracer Tracer
	// Latest, unless nil, notes what was accepted under a collapse key.
	Latest Latest

	// Tokens, unless nil, is asked before dead tokens are reported on push.feedback.
	Tokens Tokens

	// Recheck, unless nil, is asked about deliveries that are sent RecheckAfter or
	// more after their user's record was read.
	Recheck      Recheck
	RecheckAfter time.Duration

	// StageWorkers is how many batches a stage works on at once, and StageRecords how many
	// records: a larger batch is worked on alone; 0 = as many as the batches have.
	StageWorkers, StageRecords int
	// Window bounds, for each route, the sends in flight plus the answers whose
	// status row is not durable yet: what a hard kill can send twice.
	Window int
	// SendDeadline is when a send without an answer counts as AMBIGUOUS.
	SendDeadline time.Duration
	// Drain is the time within which Run returns after its ctx ended; drain.go says
	// what happens when.
	Drain time.Duration
	// StatusTimeout is the status store's time-out for one attempt. Rows that are not
	// durable after it, and hand-overs without an answer, are a declared stall; they
	// are still retried.
	StatusTimeout time.Duration
	// CommitTimeout is how long one commit may take. This much of Drain is reserved
	// for the last one.
	CommitTimeout time.Duration
	// CommitInterval is the pause between two commits.
	CommitInterval time.Duration

	Metrics *Metrics
	Log     *slog.Logger
	// Observe, if set, sees every group of deliveries with their results,
	// before anything is written. It must be quick and keep nothing.
	Observe func([]*Delivery)
}

// New checks the options and makes a Pipeline. Nothing runs before Run.
func New(o Options) (*Pipeline, error) {
	switch {
	case o.Source == nil, o.Producer == nil, o.Status == nil, o.Ledger == nil, o.Seen == nil, o.Metrics == nil, o.Log == nil:
		return nil, errors.New("pipeline: a collaborator is missing")
	case o.StageWorkers < 1, o.StageRecords < 0, o.Window < 1, o.SendDeadline <= 0, o.Drain <= 0, o.StatusTimeout <= 0, o.CommitTimeout <= 0, o.CommitInterval <= 0:
		return nil, errors.New("pipeline: stage workers, window, send deadline, drain, status time-out, commit time-out and commit interval must be positive, and stage records not negative")
	case o.Recheck != nil && o.RecheckAfter < shortestConfirm:
		return nil, fmt.Errorf("pipeline: what waits is to be checked again after %v: less than %v asks over and over", o.RecheckAfter, shortestConfirm)
	case len(o.Policy.RetryDelays) == 0:
		return nil, errors.New("pipeline: retries need a delay")
	case o.Once && !o.Policy.DropAmbiguous:
		return nil, errors.New("pipeline: at_most_once sends nothing again that is ambiguous: the policy must drop it")
	case o.submitAfterStop() < 0:
		return nil, fmt.Errorf("pipeline: send deadline %v + status time-out %v + commit time-out %v must fit into the drain budget %v",
			o.SendDeadline, o.StatusTimeout, o.CommitTimeout, o.Drain)
	}
	if o.Limit == nil {
		o.Limit = unlimited{}
	}
	o.StageRecords = cmp.Or(o.StageRecords, math.MaxInt)
	p := &Pipeline{opt: o, routes: make(map[push.Route]*route, len(o.Routes)), confirmFor: o.confirmFor(),
		toSettle: newQueue[*Delivery](), toHandOver: o.outlets(), toTell: o.tellings(), toRemember: newQueue[*Item](), commitSoon: make(chan struct{}, 1)}
	if p.opt.Gates == nil {
		var err error
		if p.opt.Gates, err = gates.New(slices.Collect(maps.Keys(o.Routes)), gates.DefaultOptions(), o.Metrics.Gates, o.Log, time.Now()); err != nil {
			return nil, err
		}
	}
	if wait := o.claimFor(); slices.Min(o.Policy.RetryDelays) < wait {
		p.claimDelay = wait
	}
	if p.opt.Events == nil {
		p.opt.Events = noEvents{}
	}
	for r, provider := range o.Routes {
		gate := p.opt.Gates.Of(r)
		if gate == nil {
			return nil, fmt.Errorf("pipeline: route %s has no gate", r)
		}
		p.routes[r] = newRoute(r, provider, gate, o.Window, o.EarliestFirst, o.Metrics)
		o.Metrics.keptTokens(r.App, 0)
	}
	o.Metrics.bound(o.Lane, p.Bound())
	o.Metrics.steps(o.Lane, o.Stages)
	return p, nil
}
