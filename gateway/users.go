package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// Registry reads users as the workers see them. It is safe for concurrent use.
type Registry interface {
	// Stored reads one user; one that is not known is empty.
	Stored(ctx context.Context, user string) (users.Stored, error)
	// Preferences reads those of a user with every change that Kafka had confirmed
	// before the call, applied or not. Such that cannot be read are an error.
	Preferences(ctx context.Context, user string) (push.Preferences, error)
}

// maxChanges is how many changes of users may wait for Kafka: of 20 KB each, 20 MB.
const maxChanges = 1000

// Users is the side of a gateway that changes and reads users. It is safe for concurrent
// use.
type Users struct {
	client   *users.Client
	registry Registry      // nil = none
	places   chan struct{} // one in it for each append that has not ended
	life     context.Context
	end      context.CancelFunc

	mu      sync.Mutex
	closed  bool // guarded by mu
	appends sync.WaitGroup
}

// NewUsers makes a Users that appends to push.users by log. registry may be nil: then
// users can be changed and not read. Both stay the caller's.
func NewUsers(log users.Log, registry Registry) *Users {
	u := &Users{client: users.NewClient(log), registry: registry, places: make(chan struct{}, maxChanges)}
	u.life, u.end = context.WithCancel(context.Background())
	return u
}

// Close takes no more changes and waits for the appends under way, which its callers may
// not wait for any more. It is called when requests are no longer answered; the log is
// closed before it, or answers when the contexts of its appends end.
func (u *Users) Close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.end()
	u.appends.Wait()
}

// start runs an append; false = it was not begun. Its result goes to done, which has
// room for it.
func (u *Users) start(within time.Duration, change func(context.Context, *users.Client) error, done chan<- error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	select {
	case u.places <- struct{}{}:
	default:
		return false
	}
	u.appends.Go(func() {
		defer func() { <-u.places }()
		// Not the request's context: who goes away must not fail what others have in
		// the same batch.
		ctx, cancel := context.WithTimeout(u.life, within)
		defer cancel()
		done <- change(ctx, u.client)
	})
	return true
}

// change appends to push.users, and waits until Kafka has it or it is too late. part
// names in metrics what is changed.
func (g *Gateway) change(ctx context.Context, part string, change func(context.Context, *users.Client) error) *Problem {
	deadline := time.NewTimer(g.o.Times.Confirm)
	defer deadline.Stop()
	done := make(chan error, 1)
	if !g.o.Users.start(g.o.Times.Confirm, change, done) {
		g.o.Metrics.changed(part, "buffer_full")
		return newProblem(codeBufferFull, "so many changes wait for Kafka that this one was not taken: send it again").after(1)
	}
	var err error
	select {
	case err = <-done:
	case <-deadline.C:
		err = context.DeadlineExceeded
	case <-ctx.Done(): // nobody waits for the answer
		err = ctx.Err()
	}
	switch {
	case err == nil:
		g.o.Metrics.changed(part, "accepted")
		return nil
	case errors.Is(err, record.ErrInvalid):
		return invalid(err)
	}
	g.o.Metrics.changed(part, "unconfirmed")
	g.o.Log.Warn("Kafka did not take a change of a user", "part", part, "error", err)
	return newProblem(codeUnconfirmed, "Kafka did not confirm it in time. It may have been accepted: send it again, which does no harm").after(2)
}

// invalid is the problem of input that breaks a rule of package users.
func invalid(err error) *Problem {
	field, rule, ok := forms.Fault(err)
	if !ok {
		return newProblem(codeBadRequest, "not what the route takes")
	}
	p := newProblem(codeInvalidField, field+": "+rule)
	switch field {
	case "user", "device hash": // of the path
		return p
	}
	return p.at("/" + field)
}

// visitor is who asks about a user: the holder of a key, or an app's client of the user.
type visitor struct {
	caller *Caller
	pass   *pass  // nil = by the key itself
	user   string // about whom
}

// has reports whether it may see what is of an app.
func (v *visitor) has(app string) bool {
	if v.pass != nil {
		return v.pass.app == app
	}
	return v.caller.apps[app]
}

// userHandler answers a request about a user. A problem that it returns is its answer.
type userHandler func(w http.ResponseWriter, r *http.Request, v *visitor) *Problem

// ofUser lets those to the handler who may use the users' routes: keys with the right, and
// tokens of the user.
func (g *Gateway) ofUser(h userHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, problem := g.visitor(r)
		switch {
		case problem != nil:
		case g.o.Users == nil:
			problem = newProblem(codeNotConfigured, "this gateway does not change users")
		default:
			problem = h(w, r, v)
		}
		if problem != nil {
			problem.write(w)
		}
	})
}

// byKey is ofUser for keys alone.
func (g *Gateway) byKey(h userHandler) http.Handler {
	return g.ofUser(func(w http.ResponseWriter, r *http.Request, v *visitor) *Problem {
		if v.pass != nil {
			return newProblem(codeForbidden, "this needs a key with the right "+string(Manage)+", and not a user's token")
		}
		return h(w, r, v)
	})
}

// visitor finds out who asks, and whether about a user that he may ask about.
func (g *Gateway) visitor(r *http.Request) (*visitor, *Problem) {
	v := &visitor{user: r.PathValue("user")}
	if problem := g.identify(v, r); problem != nil {
		return nil, problem
	}
	if !v.caller.may(Manage) {
		return nil, newProblem(codeForbidden, "this key does not have the right "+string(Manage))
	}
	if err := record.CheckUser(v.user); err != nil {
		return nil, invalid(err)
	}
	return v, nil
}

// identify finds out whose key, certificate or user's token a request has.
func (g *Gateway) identify(v *visitor, r *http.Request) (problem *Problem) {
	if leaf := certificateOf(r); leaf != nil {
		v.caller, problem = g.o.Callers.certified(r, leaf)
		return problem
	}
	text, problem := bearer(r.Header)
	if problem != nil {
		return problem
	}
	if v.caller = g.o.Callers.With(text); v.caller != nil {
		return nil
	}
	var ok bool
	v.caller, v.pass, ok = g.o.Signer.openPass(g.o.Callers, text)
	switch {
	case !ok:
		return newProblem(codeUnauthorized, "neither a key that is known nor a user's token that is good")
	case !clock().Before(v.pass.until):
		return newProblem(codeUnauthorized, "the user's token has expired: ask for another one")
	case v.pass.user != v.user:
		return newProblem(codeForeignUser, "the token is of another user")
	}
	return nil
}

// readerOf is who reads what became of a user's notifications: keys with the right read, and
// users by their tokens. sender is whose notifications they see; empty = those of all.
func (g *Gateway) readerOf(r *http.Request) (v *visitor, sender string, problem *Problem) {
	v = &visitor{user: r.PathValue("user")}
	if problem := g.identify(v, r); problem != nil {
		return nil, "", problem
	}
	switch {
	case v.pass != nil:
	case !v.caller.may(Read):
		return nil, "", newProblem(codeForbidden, "this key does not have the right "+string(Read))
	case !v.caller.may(Admin):
		sender = v.caller.Sender
	}
	if err := record.CheckUser(v.user); err != nil {
		return nil, "", invalid(err)
	}
	return v, sender, nil
}

// stored reads a user from the registry.
func (g *Gateway) stored(ctx context.Context, user string) (*users.Stored, *Problem) {
	if g.o.Users.registry == nil {
		return nil, newProblem(codeNotConfigured, "this gateway has no registry from which users could be read; changing them needs none")
	}
	ctx, cancel := context.WithTimeout(ctx, g.o.Times.Status)
	defer cancel()
	u, err := g.o.Users.registry.Stored(ctx, user)
	if err == nil && u.Quarantine&push.RecordUnread != 0 {
		err = errors.New("a record cannot be read, and is being made anew")
	}
	if err != nil {
		g.o.Log.Warn("users cannot be read", "error", err)
		return nil, newProblem(codeRegistryAway, "the registry of users does not answer, or is not complete; changes go on").after(2)
	}
	return &u, nil
}
