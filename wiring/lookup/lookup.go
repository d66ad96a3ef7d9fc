// Package lookup answers what became of a notification, and what stands between a user and
// one: the answers of `pushctl status`, `limits get` and `limits check`, and of the look-ups
// of dashboards. It changes nothing.
package lookup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// Servers are what is asked. *reach.Servers is one.
type Servers interface {
	Rows(ctx context.Context) (reach.Rows, error)
	Redis(ctx context.Context) (shards.Client, error)
	DeviceLog(ctx context.Context) (*limits.DeviceLog, error)
}

// statusTime bounds reading rows once the store is open.
const statusTime = 30 * time.Second

// Lookups asks the servers of a fleet. Its methods, and those of what it returns, are called
// by one goroutine at a time.
type Lookups struct {
	config   *configs.Config
	servers  Servers
	segments *segments.Watcher // nil = none were needed yet
	done     func()            // ends what segments reads; nil like it
}

// New connects to nothing yet. The caller calls Close; the servers stay its own.
func New(c *configs.Config, s Servers) *Lookups { return &Lookups{config: c, servers: s} }

// Close closes where segments are read.
func (l *Lookups) Close() {
	if l.done != nil {
		l.done()
	}
	l.segments, l.done = nil, nil
}

// Notification explains a notification by its rows.
func (l *Lookups) Notification(ctx context.Context, id string) (explain.Notification, error) {
	store, err := l.servers.Rows(ctx)
	if err != nil {
		return explain.Notification{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	found, err := store.Read(ctx, []string{id})
	if err != nil {
		return explain.Notification{}, err
	}
	r := &l.config.Retries
	times := explain.Times{Kept: l.config.Cassandra.TTL, Delay: slices.Max(append(slices.Clone(r.Tiers), r.Deferral))}
	return explain.Of(id, found[0], times, time.Now()), nil
}

// Question is about a notification to a user that somebody makes up. Empty = the first lane
// and app that are configured, the type "default", no sender, the lane's priority.
type Question struct {
	User, Lane, App, Type, Sender, Priority string
}

// QuestionError says which part of a question cannot be asked so.
type QuestionError struct {
	Part string // such as lane
	Why  string
}

func (e *QuestionError) Error() string { return e.Part + ": " + e.Why }

// Asked is what a question is about: a notification and its user, as both are now.
type Asked struct {
	Message push.Message
	User    push.User

	l       *Lookups
	lane    *configs.Lane
	request limits.Request
	now     time.Time
}

// Ask reads the user. The error is a *QuestionError, a *reach.ConfigError, or a server's.
func (l *Lookups) Ask(ctx context.Context, q Question) (*Asked, error) {
	a := &Asked{l: l, now: time.Now()}
	if err := a.makeUp(q); err != nil {
		return nil, err
	}
	client, err := l.servers.Redis(ctx)
	if err != nil {
		return nil, err
	}
	if err := users.NewReader(client, true).Fetch(ctx, []string{q.User}, []*push.User{&a.User}); err != nil {
		if _, unbuilt := users.IsUnbuilt(err); unbuilt {
			return nil, fmt.Errorf("%w: is `pushworker registry` running?", err)
		}
		return nil, err
	}
	o, err := wiring.Quiet(l.config)
	if err != nil {
		return nil, &reach.ConfigError{Err: err}
	}
	m := &a.Message
	a.request = limits.Request{Owner: m.UserID, ID: m.ID, Type: m.Type, App: m.App, Lane: a.lane.Name, Channel: push.ChannelPush,
		Priority: uint8(m.Priority), Personal: a.User.Limits, Zone: quiet.New(o).Zone(&a.User), State: a.User.Limiter, At: a.now, Since: a.now}
	for i := range a.User.Devices {
		if d := &a.User.Devices[i]; d.App == m.App {
			a.request.Devices = append(a.request.Devices, limits.Device{Hash: limits.DeviceHash(d.Hash)})
		}
	}
	a.request.Segments, err = l.segmentsOf(ctx, m.UserID, &a.User)
	return a, err
}

// makeUp makes the notification that a question is about, as a worker would take it.
func (a *Asked) makeUp(q Question) error {
	c := a.l.config
	if a.lane = &c.Lanes[0]; q.Lane != "" {
		if a.lane = c.Lane(q.Lane); a.lane == nil {
			return &QuestionError{"lane", fmt.Sprintf("there is no lane %q", q.Lane)}
		}
	}
	if q.App == "" && len(c.Apps) > 0 {
		q.App = c.Apps[0].Name
	}
	if len(c.Apps) > 0 && !slices.ContainsFunc(c.Apps, func(app configs.App) bool { return app.Name == q.App }) {
		return &QuestionError{"app", fmt.Sprintf("there is no app %q", q.App)}
	}
	if q.Type == "" {
		q.Type = "default"
	}
	if q.Priority == "" {
		q.Priority = a.lane.DefaultPriority
	}
	priority := wiring.Priority(q.Priority)
	if priority.String() != q.Priority {
		return &QuestionError{"priority", fmt.Sprintf("%q is none: critical, high, medium, low or bulk", q.Priority)}
	}
	if may := a.lane.MayBeCritical(); priority == push.Critical && may != nil && !may[q.Sender] {
		priority = push.High
	}
	a.Message = push.Message{ID: "look-up", UserID: q.User, App: q.App, Type: q.Type, SenderID: q.Sender, Priority: priority}
	return nil
}

// segmentsOf are a user's segments, if rules need them. What is loaded once is loaded again
// when there is something newer.
func (l *Lookups) segmentsOf(ctx context.Context, id string, u *push.User) ([]string, error) {
	if !slices.ContainsFunc(l.config.Limits.Rules, func(r configs.Rule) bool { return len(r.Segments)+len(r.SegmentMax) > 0 }) {
		return nil, nil
	}
	if l.segments == nil {
		source, done, err := wiring.Segments(&l.config.Segments)
		switch {
		case err != nil:
			return nil, &reach.ConfigError{Err: err}
		case source == nil:
			return nil, nil
		}
		l.segments, l.done = segments.NewWatcher(source, segments.WatcherOptions{MaxBytes: int64(l.config.Segments.MaxBytes)}), done
	}
	if err := l.segments.Poll(ctx); err != nil {
		return nil, err
	}
	return l.segments.Set().AppendNames(nil, id, u.Profile.Number, u.Profile.HasNumber), nil
}
