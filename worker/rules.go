package worker

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/limits/senders"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/wiring"
)

// rulesRound is how often the configuration is read again, unless the options say it.
const rulesRound = 10 * time.Second

// rules are what decides who gets what: the limits and the preferences of the
// configuration at the start, and then those that its file has come to hold. Everything
// else in it needs a restart.
type rules struct {
	redis   shards.Client
	devices *limits.DeviceLog // where rules of devices count; nil = in Redis
	log     *slog.Logger
	// read tells the users' reader whether there are any rules: only then are the
	// limiter states read with the users.
	read    func(bool)
	current atomic.Pointer[limits.Limiter] // nil = there are none
	list    atomic.Pointer[[]limits.Rule]  // those of current
	buckets atomic.Pointer[senders.Limits] // nil = senders have no limits
	fullest senders.Fullest                // of all buckets there were
	prefers atomic.Pointer[prefers]        // never nil
	// fits, if set, refuses rules that name segments which are not there, and otherwise
	// calls use while the segments they name are guaranteed to stay.
	fits func(list []limits.Rule, use func()) error

	good  prometheus.Gauge
	since prometheus.Gauge
	// Of follow's goroutine:
	started *configs.Config // with which everything else runs
	inForce *configs.Config // of which limits, preferences and countries are in force
	latest  *configs.Config // as it was read last; nil = it could not be
	said    string          // what was logged last, so that it is said once; empty = all is well
}

// newRules puts the rules of c in force. now is when c was read.
func newRules(c *configs.Config, client shards.Client, devices *limits.DeviceLog, read func(bool), log *slog.Logger, reg prometheus.Registerer, now time.Time) (*rules, error) {
	r := &rules{redis: client, devices: devices, log: log, read: read, started: c,
		good:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_config_last_reload_successful", Help: "0 = a configuration was read that is not valid or was refused, and none has been put in force since: what was in force before holds. 1 = otherwise."}),
		since: prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_config_last_reload_success_timestamp_seconds", Help: "When the limits and preferences in force were read, in Unix seconds."}),
	}
	reg.MustRegister(r.good, r.since)
	if err := r.apply(c, now); err != nil {
		return nil, err
	}
	return r, nil
}

// limiter returns the limiter in force; nil = there are no rules.
func (r *rules) limiter() stages.Limiter {
	if l := r.current.Load(); l != nil {
		return l
	}
	return nil // not the nil pointer: as an interface it would be something
}

// senders returns the limits of senders in force; nil = there are none.
func (r *rules) senders() stages.Senders {
	if s := r.buckets.Load(); s != nil {
		return s
	}
	return nil // as in limiter
}

// prefers is how users' preferences are applied.
type prefers struct {
	lanes map[string]stages.Rules // by name
	quiet *quiet.Policy           // of all of them
}

func newPrefers(c *configs.Config) (*prefers, error) {
	hours, err := wiring.Quiet(c)
	if err != nil {
		return nil, err
	}
	p := &prefers{make(map[string]stages.Rules, len(c.Lanes)), quiet.New(hours)}
	for _, l := range c.Lanes {
		p.lanes[l.Name] = stages.Rules{Consent: wiring.Consent(c, l), Quiet: p.quiet}
	}
	return p, nil
}

// preferences are the rules of a lane about users' preferences in force.
func (r *rules) preferences(lane string) stages.Rules { return r.prefers.Load().lanes[lane] }

// zone is the time zone of a user by what is in force.
func (r *rules) zone(u *push.User) *time.Location { return r.prefers.Load().quiet.Zone(u) }

// apply puts the rules of c in force, all or none: after an error those before it hold.
func (r *rules) apply(c *configs.Config, now time.Time) error {
	if c.Limits.Devices != r.started.Limits.Devices {
		return errors.New("limits.devices has changes that need a restart")
	}
	inForce, err := r.started.Reloaded(c)
	if err != nil {
		return err
	}
	var limiter *limits.Limiter
	list := wiring.Rules(inForce)
	if len(list) > 0 {
		if limiter, err = limits.New(r.redis, list, wiring.LimitsOptions(inForce, r.devices)...); err != nil {
			return err
		}
	}
	var buckets *senders.Limits
	if list := wiring.SenderRules(inForce); len(list) > 0 {
		if buckets, err = senders.New(r.redis, list, &r.fullest); err != nil {
			return err
		}
	}
	prefers, err := newPrefers(inForce)
	if err != nil {
		return err
	}
	use := func() {
		r.prefers.Store(prefers)
		r.read(limiter != nil)
		r.list.Store(&list)
		r.current.Store(limiter)
		r.buckets.Store(buckets)
	}
	if r.fits == nil {
		use()
	} else if err := r.fits(list, use); err != nil {
		return err
	}
	r.inForce = c
	r.good.Set(1)
	r.since.Set(float64(now.UnixMilli()) / 1e3)
	return nil
}

// follow reads the configuration again at intervals and puts its rules in force when
// they have changed, until ctx ends.
func (r *rules) follow(ctx context.Context, every time.Duration, load func() (*configs.Config, error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.look(load, time.Now())
		}
	}
}

// look reads the configuration once. What has changed is put in force when it reads the
// same at two looks: a file that is being written may read as one with fewer rules.
func (r *rules) look(load func() (*configs.Config, error), now time.Time) {
	c, err := load()
	settled := err == nil && r.latest != nil && !differ(c, r.latest)
	r.latest = c
	if before := r.inForce; settled && differ(c, before) {
		if err = r.apply(c, now); err == nil {
			r.told(before, c)
		}
	}
	if err != nil {
		r.good.Set(0)
		r.say(err.Error(), func(text string) {
			r.log.Error("the configuration cannot be put in force: limits and preferences stay as they are", "error", text)
		})
		return
	}
	if differ(c, r.inForce) {
		return // not settled: nobody knows yet whether it can be put in force
	}
	r.good.Set(1)
	r.say(strings.Join(r.started.Changed(c), ", "), func(sections string) {
		r.log.Warn("the configuration has changes that need a restart", "sections", sections)
	})
}

// differ reports whether two configurations have other rules.
func differ(a, b *configs.Config) bool {
	return !reflect.DeepEqual(a.Limits, b.Limits) || preferDifferently(a, b)
}

func preferDifferently(a, b *configs.Config) bool {
	return !reflect.DeepEqual(a.Preferences, b.Preferences) || !reflect.DeepEqual(a.Countries, b.Countries)
}

// told logs what has come in force.
func (r *rules) told(before, now *configs.Config) {
	if !reflect.DeepEqual(before.Limits, now.Limits) {
		r.log.Info("limits changed", "rules", len(now.Limits.Rules))
	}
	if preferDifferently(before, now) {
		r.log.Info("preferences changed", "countries", len(now.Countries), "promotional_types", len(now.Preferences.PromotionalTypes))
	}
}

// say logs what is new; nothing to say is not logged.
func (r *rules) say(text string, log func(string)) {
	if text != r.said && text != "" {
		log(text)
	}
	r.said = text
}
