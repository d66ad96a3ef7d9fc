package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// userLimits reads how limits stand for users, and counts what is shown of inboxes: in the
// states in Redis by which workers decide, and with the configured rules. It is safe for
// concurrent use.
type userLimits struct {
	config   *configs.Config
	reader   *users.Reader
	limiter  *limits.Limiter // nil = there are no rules
	policy   *quiet.Policy
	segments *segments.Watcher // nil = no rule asks for segments
}

// newUserLimits connects to nothing. The client stays the caller's. Rules of devices that
// count in Cassandra are left out: a gateway does not read their tables. done ends what it
// has open.
func newUserLimits(c *configs.Config, client shards.Client, log *slog.Logger) (u *userLimits, done func(), err error) {
	u, done = &userLimits{config: c, reader: users.NewReader(client, true)}, func() {}
	o, err := wiring.Quiet(c)
	if err != nil {
		return nil, nil, err
	}
	u.policy = quiet.New(o)
	rules := slices.DeleteFunc(wiring.Rules(c), func(r limits.Rule) bool { return r.Per == limits.PerDeviceType && c.Limits.Devices.InCassandra() })
	if len(rules) == 0 {
		return u, done, nil
	}
	if u.limiter, err = limits.New(client, rules, wiring.LimitsOptions(c, nil)...); err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(rules, func(r limits.Rule) bool { return len(r.Segments)+len(r.SegmentMax) > 0 }) {
		return u, done, nil
	}
	source, done, err := wiring.Segments(&c.Segments)
	if err != nil {
		return nil, nil, err
	}
	if source != nil {
		u.segments = segments.NewWatcher(source, segments.WatcherOptions{MaxBytes: int64(c.Segments.MaxBytes), Log: log})
	}
	return u, done, nil
}

// run looks for new segments until ctx ends.
func (u *userLimits) run(ctx context.Context) {
	if u.segments != nil {
		_ = u.segments.Run(ctx) // the end of ctx
	}
}

// errNoSegments says that limits that go by segments cannot be told yet.
var errNoSegments = errors.New("segments are not loaded yet")

// Uses implements gateway.UserLimits.
func (u *userLimits) Uses(ctx context.Context, user, app, messageType string, lanes []string) ([][]gateway.LimitUse, error) {
	var known push.User
	if err := u.reader.Fetch(ctx, []string{user}, []*push.User{&known}); err != nil {
		return nil, err
	}
	uses, now := make([][]gateway.LimitUse, len(lanes)), time.Now()
	if u.limiter == nil {
		return uses, nil
	}
	r := limits.Request{Owner: user, ID: "gateway-limits", Type: messageType, App: app, Channel: push.ChannelPush, Personal: known.Limits,
		Zone: u.policy.Zone(&known), State: known.Limiter, At: now, Since: now}
	names := make(map[uint32]string)
	for i := range known.Devices {
		if d := &known.Devices[i]; d.App == app {
			hash := limits.DeviceHash(d.Hash)
			r.Devices, names[hash] = append(r.Devices, limits.Device{Hash: hash}), d.Hash
		}
	}
	if u.segments != nil {
		set := u.segments.Set()
		if set == nil {
			return nil, errNoSegments
		}
		r.Segments = set.AppendNames(nil, user, known.Profile.Number, known.Profile.HasNumber)
	}
	for i, lane := range lanes {
		of := r // the rules of each lane are asked by themselves
		of.Lane, of.Priority = lane, uint8(wiring.Priority(u.config.Lane(lane).DefaultPriority))
		found, err := u.limiter.Usage(ctx, &of)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			uses[i] = append(uses[i], gateway.LimitUse{Rule: f.Rule, Per: string(f.Dimension), Device: names[f.Device], Used: f.Current, Limit: f.Limit, FreeAt: f.FreeAt, ResetAt: f.ResetAt})
		}
	}
	return uses, nil
}

// errNoRecord says that nothing is known of a user whose record is there.
var errNoRecord = errors.New("the user's record cannot be read")

// Admit implements gateway.InboxLimits: by what the user wants, and by all rules, those of
// devices left out. What is shown counts on the channel inbox, by the notification's id.
func (u *userLimits) Admit(ctx context.Context, k inbox.Key, entries []inbox.Entry) ([]gateway.Admission, error) {
	var known push.User
	if err := u.reader.Fetch(ctx, []string{k.User}, []*push.User{&known}); err != nil {
		return nil, err
	}
	if known.Quarantine&push.RecordUnread != 0 {
		return nil, errNoRecord
	}
	answers := make([]gateway.Admission, len(entries))
	var asked []int
	for i := range entries {
		switch verdict := u.wants(known, k, &entries[i]); {
		case verdict == push.Deferred: // until what he wants can be read
		case verdict != push.Undecided:
			answers[i].Hidden = true
		case u.limiter == nil:
			answers[i].Shown = true
		default:
			asked = append(asked, i)
		}
	}
	if len(asked) == 0 {
		return answers, nil
	}
	usual, err := u.request(&known, k)
	if err != nil {
		return nil, err
	}
	reqs := make([]*limits.Request, len(asked))
	for n, i := range asked {
		r, e := usual, &entries[i]
		r.ID, r.Type, r.Lane, r.Priority = e.ID, e.Type, e.Lane, uint8(e.Priority)
		reqs[n] = &r
	}
	if err := u.limiter.Decide(ctx, reqs); err != nil {
		return nil, err
	}
	for n, i := range asked {
		if r := reqs[n]; r.Allowed {
			answers[i].Shown = true
		} else if r.RetryAfter > 0 {
			answers[i].FreeAt = r.At.Add(r.RetryAfter)
		}
	}
	return answers, nil
}

// wants is the verdict of a user's preferences about an entry. That he wants no pushes is
// nothing against what he looks for himself.
func (u *userLimits) wants(known push.User, k inbox.Key, e *inbox.Entry) push.Verdict {
	m := push.Message{ID: e.ID, App: k.App, UserID: k.User, Type: e.Type, SenderID: e.Sender, Priority: e.Priority}
	if !known.Preferences.Wants(&m, push.ChannelInbox) {
		return push.Suppressed
	}
	known.Preferences.Channels = nil
	var consent push.Consent
	if l := u.config.Lane(e.Lane); l != nil {
		consent = wiring.Consent(u.config, *l)
	}
	verdict, _ := known.Verdict(&m, &consent)
	return verdict
}

// request is what is the same of all requests about one user's inbox. It expires at once,
// so that no place on the user's time line is booked for what may be read at any time.
func (u *userLimits) request(known *push.User, k inbox.Key) (limits.Request, error) {
	now := time.Now().Truncate(time.Millisecond) // as states have times: so that FreeAt is the same each time
	r := limits.Request{Owner: k.User, App: k.App, Channel: push.ChannelInbox, Personal: known.Limits,
		Zone: u.policy.Zone(known), State: known.Limiter, At: now, Since: now, Expires: now.Add(time.Millisecond)}
	if u.segments != nil {
		set := u.segments.Set()
		if set == nil {
			return r, errNoSegments
		}
		r.Segments = set.AppendNames(nil, k.User, known.Profile.Number, known.Profile.HasNumber)
	}
	return r, nil
}
