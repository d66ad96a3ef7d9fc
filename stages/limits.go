package stages

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Limiter decides requests by all its rules together. Asking again about an id
// that was allowed spends nothing, so the stage may be repeated. It is asked about
// critical messages only if it counts them.
type Limiter interface {
	Decide(ctx context.Context, reqs []*limits.Request) error
	CountsCritical() bool
}

// Senders decides requests by the limits of their senders. It counts attempts: asking
// again takes another token.
type Senders interface {
	Decide(ctx context.Context, reqs []*limits.Request) error
}

// Limits suppresses or puts off notifications over a user's limits, and suppresses
// single deliveries over a device's. Critical messages pass, and so does what was
// allowed before: an earlier record says so, or it is a retry (of an earlier version,
// which did not say so), whose first attempt was allowed. It comes after Devices, so
// that a notification without a device spends nothing.
//
// What is put off has its place on the user's time line, and is asked about again
// when that has come. The sender's limits come last, of what is going to be sent,
// critical or not; what they put off has its token already, unless too much waits.
type Limits struct {
	// Limiter returns the limiter of the rules that are in force, nil where there
	// are none; nil = there never are any. The rules of a batch do not change.
	Limiter func() Limiter
	// Senders is the same of the limits of senders.
	Senders func() Senders
	Lane    string
	// Zone says whose clock windows of a day go by; nil = UTC's.
	Zone func(*push.User) *time.Location
	// Segments appends the segments that a user is in, each as group/segment, in
	// the order in which rules prefer them; nil = none are known.
	Segments func(names []string, owner string, u *push.User) []string
	// Checks counts what was decided; nil = nothing does.
	Checks *LimitMetrics
}

// Name implements pipeline.Stage.
func (*Limits) Name() string { return "limits" }

// Apply decides all items that have something to send at once: first those of the
// recipients' limits, then what is left by those of the senders.
func (s *Limits) Apply(ctx context.Context, b *pipeline.Batch) error {
	if s.Limiter != nil {
		if limiter := s.Limiter(); limiter != nil {
			if err := s.recipients(ctx, b, limiter); err != nil {
				return fmt.Errorf("checking limits: %w", err)
			}
		}
	}
	if s.Senders != nil {
		if senders := s.Senders(); senders != nil {
			if err := s.senders(ctx, b, senders); err != nil {
				return fmt.Errorf("checking limits of senders: %w", err)
			}
		}
	}
	return nil
}

func (s *Limits) recipients(ctx context.Context, b *pipeline.Batch, limiter Limiter) error {
	asked := s.ask(b, limiter.CountsCritical(), time.Now())
	if len(asked.items) > 0 {
		if err := limiter.Decide(ctx, asked.reqs); err != nil {
			return err
		}
	}
	for i, it := range asked.items {
		r := asked.reqs[i]
		it.Allowed = r.Allowed
		answer(it, r)
		refuse(it, r.Devices)
	}
	s.Checks.decided(&asked)
	return nil
}

// senders asks about each item that will be sent, also again, and has no token.
func (s *Limits) senders(ctx context.Context, b *pipeline.Batch, senders Senders) error {
	now := time.Now()
	var items []*pipeline.Item
	for i := range b.Items {
		if it := &b.Items[i]; it.Verdict == push.Undecided && it.SenderID != "" && !it.Paid && slices.ContainsFunc(it.Deliveries, isOpen) {
			items = append(items, it)
		}
	}
	if len(items) == 0 {
		return nil
	}
	slab, reqs := make([]limits.Request, len(items)), make([]*limits.Request, len(items))
	for i, it := range items {
		slab[i] = limits.Request{
			Owner: it.Owner(), ID: it.ID, Type: it.Type, Sender: it.SenderID,
			App: it.App, Lane: s.Lane, Channel: channelOf(it), Priority: uint8(it.Priority),
			At: now, Since: it.FirstSeen, Expires: it.Expires, Jitter: jitter(it),
		}
		reqs[i] = &slab[i]
	}
	if err := senders.Decide(ctx, reqs); err != nil {
		return err
	}
	for i, it := range items {
		it.Paid = reqs[i].Allowed || reqs[i].Paid
		if reqs[i].Deferred {
			withoutRefused(it)
		}
		answer(it, reqs[i])
	}
	s.Checks.refusedBySenders(reqs)
	return nil
}

// asking is what a batch asks of the limiter: a request for each of the items.
type asking struct {
	items    []*pipeline.Item
	reqs     []*limits.Request
	bypassed int // critical ones, about which nobody needs to be asked
}

// ask makes the requests of a batch. Their parts are cut from one slice each.
func (s *Limits) ask(b *pipeline.Batch, critical bool, now time.Time) (a asking) {
	deliveries := 0
	for i := range b.Items {
		it := &b.Items[i]
		if it.Verdict != push.Undecided || it.Allowed || it.Attempt > 0 || !slices.ContainsFunc(it.Deliveries, isOpen) {
			continue
		}
		if it.Priority == push.Critical && !critical {
			a.bypassed++
			continue
		}
		a.items = append(a.items, it)
		deliveries += len(it.Deliveries)
	}
	slab, devices := make([]limits.Request, len(a.items)), make([]limits.Device, 0, deliveries)
	a.reqs = make([]*limits.Request, len(a.items))
	var names []string
	for i, it := range a.items {
		from := len(devices)
		devices = appendDevices(devices, it)
		slab[i] = limits.Request{
			Owner: it.Owner(), ID: it.ID, Type: it.Type,
			App: it.App, Lane: s.Lane, Channel: channelOf(it), Priority: uint8(it.Priority),
			Personal: it.User.Limits, Devices: devices[from:len(devices):len(devices)],
			State: it.User.Limiter, At: now, Since: it.FirstSeen, Expires: it.Expires, Jitter: jitter(it),
		}
		if s.Zone != nil {
			slab[i].Zone = s.Zone(it.User)
		}
		if s.Segments != nil {
			first := len(names)
			names = s.Segments(names, it.Owner(), it.User)
			slab[i].Segments = names[first:len(names):len(names)]
		}
		a.reqs[i] = &slab[i]
	}
	return a
}

func isOpen(d pipeline.Delivery) bool { return d.Verdict == push.Undecided }

// appendDevices appends the open deliveries of an item.
func appendDevices(ds []limits.Device, it *pipeline.Item) []limits.Device {
	for i := range it.Deliveries {
		if d := &it.Deliveries[i]; isOpen(*d) {
			ds = append(ds, limits.Device{Hash: limits.DeviceHash(d.Device.Hash)})
		}
	}
	return ds
}

// channelOf is the channel of an item: that of its first open delivery, as long as
// all platforms are of one.
func channelOf(it *pipeline.Item) string {
	i := slices.IndexFunc(it.Deliveries, isOpen)
	return it.Deliveries[i].Device.Platform.Channel()
}

// longestJitter spreads what waits for the same moment, such as the end of a day,
// over a minute.
const longestJitter = time.Minute

// jitter is a part of longestJitter: always the same for a notification, so that
// asking again changes nothing.
func jitter(it *pipeline.Item) time.Duration {
	return time.Duration(push.UserHash(it.ID)) & (1<<62 - 1) % longestJitter
}

// answer gives an item what was decided.
func answer(it *pipeline.Item, r *limits.Request) {
	switch {
	case r.Allowed:
		return
	case r.Deferred:
		it.NotBefore = r.At.Add(r.RetryAfter)
		it.Decide(push.Deferred, push.LimitWaits, r.Rule)
	default:
		it.Decide(push.Suppressed, push.Limited, r.Rule)
	}
	it.Deliveries = nil
}

// refuse suppresses the open deliveries that rules of devices refuse.
func refuse(it *pipeline.Item, devices []limits.Device) {
	n := 0
	for i := range it.Deliveries {
		d := &it.Deliveries[i]
		if !isOpen(*d) {
			continue
		}
		if devices[n].Refused {
			d.Verdict, d.Reason = push.Suppressed, push.Limited+":"+push.Reason(devices[n].Rule)
		}
		n++
	}
}

// withoutRefused names the devices of an item that is put off, if rules of devices
// have refused some: nobody asks about them again when it comes back.
func withoutRefused(it *pipeline.Item) {
	refused := func(d pipeline.Delivery) bool {
		return d.Verdict == push.Suppressed && strings.HasPrefix(string(d.Reason), string(push.Limited)+":")
	}
	if !slices.ContainsFunc(it.Deliveries, refused) {
		return
	}
	it.Devices = nil
	for i := range it.Deliveries {
		if d := &it.Deliveries[i]; !refused(*d) {
			it.Devices = append(it.Devices, d.Device.Hash)
		}
	}
}
