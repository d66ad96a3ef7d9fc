package stages

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Limiter decides requests by all its rules together, and asks the senders' limits
// before anything is spent. Asking again about an id that was allowed spends nothing,
// so the stage may be repeated. It is asked about critical messages only if it counts
// them. It keeps no request after the call.
type Limiter interface {
	DecideWith(ctx context.Context, reqs []*limits.Request, senders limits.SenderLimits) error
	CountsCritical() bool
}

// Senders decides requests by the limits of their senders. It counts attempts: asking
// again takes another token. It keeps no request after the call.
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
// when that has come. The sender's limits come last, about what is going to be sent,
// critical or not. What they put off has its token already, unless too much waits;
// it has spent nothing of its user's limits, and is held against them when it comes
// back.
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
	// Consent says what needs no user's record: it is not counted without one, and
	// goes on while a store is away.
	Consent push.Consent
	// Checks counts what was decided; nil = nothing does.
	Checks *LimitMetrics

	pool sync.Pool // of *asking
}

// Name implements pipeline.Stage.
func (*Limits) Name() pipeline.Step { return StepLimits }

// Apply decides all items that have something to send at once. Repeated after an
// error, it asks about what the senders' limits have not answered, and takes no second
// token for what has one.
func (s *Limits) Apply(ctx context.Context, b *pipeline.Batch) error {
	var limiter Limiter
	if s.Limiter != nil {
		limiter = s.Limiter()
	}
	var senders Senders
	if s.Senders != nil {
		senders = s.Senders()
	}
	now := time.Now()
	asked, _ := s.pool.Get().(*asking)
	if asked == nil {
		asked = new(asking)
	}
	defer func() {
		asked.release()
		s.pool.Put(asked)
	}()
	s.ask(asked, b, limiter, senders, now)
	err := decide(ctx, asked.reqs, limiter, senders)
	for i, it := range asked.items {
		r := asked.reqs[i]
		it.Paid = r.Paid
		if err == nil || bySender(r) {
			settle(it, r)
		}
	}
	s.Checks.decided(asked, err)
	if err != nil && s.mayGoOn(ctx, err) {
		err = s.goOn(ctx, asked, senders, now)
	}
	if err != nil {
		return fmt.Errorf("checking limits: %w", err)
	}
	return nil
}

func decide(ctx context.Context, reqs []*limits.Request, limiter Limiter, senders Senders) error {
	switch {
	case len(reqs) == 0:
		return nil
	case limiter != nil:
		return limiter.DecideWith(ctx, reqs, senders)
	default: // they are all exempt
		return senders.Decide(ctx, reqs)
	}
}

// bySender reports whether the answer is the senders' limits', which stands at once.
func bySender(r *limits.Request) bool { return r.Dimension == limits.DimensionSender }

// asking is what a batch asks of the limits: a request for each of the items.
type asking struct {
	items []*pipeline.Item
	reqs  []*limits.Request
	// What the requests and their parts are cut from. It is some megabytes for a large
	// batch, so the next batch gets it again.
	slab    []limits.Request
	devices []limits.Device
	names   []string
	// Critical ones that rules of recipients are not asked about, of them those that
	// a rule would count.
	bypassed, uncounted int
}

// release empties a, so that it keeps nothing of its batch.
func (a *asking) release() {
	clear(a.items)
	clear(a.slab)
	clear(a.names)
	*a = asking{items: a.items[:0], reqs: a.reqs[:0], slab: a.slab[:0], devices: a.devices[:0], names: a.names[:0]}
}

// ask makes the requests of a batch.
func (s *Limits) ask(a *asking, b *pipeline.Batch, limiter Limiter, senders Senders, now time.Time) {
	counts := limiter != nil && limiter.CountsCritical()
	exempt := func(it *pipeline.Item) bool {
		return limiter == nil || it.Allowed || it.Attempt > 0 || it.Priority == push.Critical && !(counts && recorded(it))
	}
	deliveries := 0
	for i := range b.Items {
		it := &b.Items[i]
		if it.Verdict != push.Undecided || firstOpen(it) < 0 {
			continue
		}
		if exempt(it) {
			switch {
			case limiter == nil || it.Allowed || it.Attempt > 0:
			case counts:
				a.uncounted++
			default:
				a.bypassed++
			}
			if senders == nil || it.SenderID == "" || it.Paid {
				continue
			}
		}
		a.items = append(a.items, it)
		deliveries += len(it.Deliveries)
	}
	a.slab, a.reqs = slices.Grow(a.slab, len(a.items)), slices.Grow(a.reqs, len(a.items))
	a.devices = slices.Grow(a.devices, deliveries)
	needs := func(i int) byte {
		it := a.items[i]
		n := byte(it.FirstSeen) + byte(it.Priority) + push.Ends(it.ID)
		if it.User != nil {
			n += byte(len(it.User.Limits))
		}
		for j := range it.Deliveries {
			d := &it.Deliveries[j]
			n += byte(d.Verdict) + byte(d.Route.Platform) + push.Ends(d.Device.Hash)
		}
		return n
	}
	for i := range push.Prefetching(len(a.items), needs) {
		it := a.items[i]
		a.slab = append(a.slab, s.request(it, now))
		r := &a.slab[len(a.slab)-1]
		a.reqs = append(a.reqs, r)
		if r.Exempt = exempt(it); r.Exempt {
			continue
		}
		from := len(a.devices)
		a.devices = appendDevices(a.devices, it)
		r.Devices, r.Personal, r.State = a.devices[from:len(a.devices):len(a.devices)], it.User.Limits, it.User.Limiter
		if s.Zone != nil {
			r.Zone = s.Zone(it.User)
		}
		if s.Segments != nil {
			first := len(a.names)
			a.names = s.Segments(a.names, it.Owner(), it.User)
			r.Segments = a.names[first:len(a.names):len(a.names)]
		}
	}
}

// request is what is asked about an item, whatever is known of its user.
func (s *Limits) request(it *pipeline.Item, now time.Time) limits.Request {
	return limits.Request{
		Owner: it.Owner(), ID: it.ID, Type: it.Type, Sender: it.SenderID, Paid: it.Paid,
		App: it.App, Lane: s.Lane, Channel: channelOf(it), Priority: uint8(it.Priority),
		At: now, Since: it.FirstSeen.Time(), Expires: it.Expires.Time(), Jitter: jitter(it),
	}
}

// recorded reports whether the user's record could be read. What goes on without is
// not counted: its state was not read either, and a one-time password does not wait
// to be counted.
func recorded(it *pipeline.Item) bool { return it.User.Quarantine&push.RecordUnread == 0 }

func isOpen(d *pipeline.Delivery) bool { return d.Verdict == push.Undecided }

// firstOpen is the index of an item's first open delivery, -1 if it has none.
func firstOpen(it *pipeline.Item) int {
	for i := range it.Deliveries {
		if isOpen(&it.Deliveries[i]) {
			return i
		}
	}
	return -1
}

// appendDevices appends the open deliveries of an item.
func appendDevices(ds []limits.Device, it *pipeline.Item) []limits.Device {
	for i := range it.Deliveries {
		if d := &it.Deliveries[i]; isOpen(d) {
			ds = append(ds, limits.Device{Hash: limits.DeviceHash(d.Device.Hash)})
		}
	}
	return ds
}

// channelOf is the channel of an item: that of its first open delivery, as long as
// all platforms are of one.
func channelOf(it *pipeline.Item) string {
	return it.Deliveries[firstOpen(it)].Route.Platform.Channel()
}

// longestJitter spreads what waits for the same moment, such as the end of a day,
// over a minute.
const longestJitter = time.Minute

// jitter is a part of longestJitter: always the same for a notification, so that
// asking again changes nothing.
func jitter(it *pipeline.Item) time.Duration {
	return time.Duration(push.UserHash(it.ID)) & (1<<62 - 1) % longestJitter
}

// settle gives an item what was decided.
func settle(it *pipeline.Item, r *limits.Request) {
	switch {
	case r.Allowed:
		if !r.Exempt {
			it.Allowed = true
			refuse(it, r.Devices)
		}
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
		if !isOpen(d) {
			continue
		}
		if devices[n].Refused {
			d.Verdict, d.Reason = push.Suppressed, push.Limited+":"+push.Reason(devices[n].Rule)
		}
		n++
	}
}
