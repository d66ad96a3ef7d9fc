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
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/wiring"
)

// rulesRound is how often the configuration is read again, unless the options say it.
const rulesRound = 10 * time.Second

// rules are the limits in force: those of the configuration at the start, and then
// those that its file has come to hold. Everything else in it needs a restart.
type rules struct {
	redis   shards.Client
	devices *limits.DeviceLog // where rules of devices count; nil = in Redis
	log     *slog.Logger
	// read tells the users' reader whether there are any rules: only then are the
	// limiter states read with the users.
	read    func(bool)
	current atomic.Pointer[limits.Limiter] // nil = there are none
	list    atomic.Pointer[[]limits.Rule]  // those of current
	buckets atomic.Pointer[limits.Senders] // nil = senders have no limits
	// fits, if set, refuses rules that name what is not there.
	fits func([]limits.Rule) error

	good  prometheus.Gauge
	since prometheus.Gauge
	// Of follow's goroutine:
	started *configs.Config // with which everything else runs
	limits  configs.Limits  // in force
	latest  *configs.Config // as it was read last; nil = it could not be
	said    string          // what was logged last, so that it is said once; empty = all is well
}

// newRules puts the rules of c in force. now is when c was read.
func newRules(c *configs.Config, client shards.Client, devices *limits.DeviceLog, read func(bool), log *slog.Logger, reg prometheus.Registerer, now time.Time) (*rules, error) {
	r := &rules{redis: client, devices: devices, log: log, read: read, started: c,
		good:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_config_last_reload_successful", Help: "1 = the configuration was valid when it was last read, 0 = it was not, and the limits before it hold."}),
		since: prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_config_last_reload_success_timestamp_seconds", Help: "When the limits in force were read, in Unix seconds."}),
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

// apply puts the rules of c in force. After an error those before it hold.
func (r *rules) apply(c *configs.Config, now time.Time) error {
	if c.Limits.Devices != r.started.Limits.Devices {
		return errors.New("limits.devices has changes that need a restart")
	}
	var limiter *limits.Limiter
	list := wiring.Rules(c)
	if r.fits != nil {
		if err := r.fits(list); err != nil {
			return err
		}
	}
	if len(list) > 0 {
		var err error
		if limiter, err = limits.New(r.redis, list, wiring.LimitsOptions(c, r.devices)...); err != nil {
			return err
		}
	}
	var buckets *limits.Senders
	if list := wiring.SenderRules(c); len(list) > 0 {
		var err error
		if buckets, err = limits.NewSenders(r.redis, list); err != nil {
			return err
		}
	}
	r.limits = c.Limits
	r.read(limiter != nil)
	r.list.Store(&list)
	r.current.Store(limiter)
	r.buckets.Store(buckets)
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
	settled := err == nil && r.latest != nil && reflect.DeepEqual(c.Limits, r.latest.Limits)
	r.latest = c
	if settled && !reflect.DeepEqual(c.Limits, r.limits) {
		if err = r.apply(c, now); err == nil {
			r.log.Info("limits changed", "rules", len(c.Limits.Rules))
		}
	}
	if err != nil {
		r.good.Set(0)
		r.say(err.Error(), func(text string) {
			r.log.Error("the configuration is not valid any more: the limits stay as they are", "error", text)
		})
		return
	}
	r.good.Set(1)
	r.say(strings.Join(r.started.Changed(c), ", "), func(sections string) {
		r.log.Warn("the configuration has changes that need a restart", "sections", sections)
	})
}

// say logs what is new; nothing to say is not logged.
func (r *rules) say(text string, log func(string)) {
	if text != r.said && text != "" {
		log(text)
	}
	r.said = text
}
