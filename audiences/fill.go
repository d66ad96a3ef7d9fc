package audiences

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users/record"
)

// Record is one of push.users, as far as members come from it.
type Record struct {
	Key   string
	Value []byte    // nil = a removal
	At    time.Time // when it was written
}

// Source reads push.users in a consumer group.
type Source interface {
	// Poll waits for records. Each is handed out again, to this or another reader, until it
	// was committed. When ctx ends first it returns ctx's error.
	Poll(ctx context.Context) ([]Record, error)
	// Commit commits everything that Poll has handed out.
	Commit(ctx context.Context) error
}

// Adder notes uses, as Store does.
type Adder interface {
	Add(ctx context.Context, uses []Use) (added int, err error)
}

// FillerOptions are what a Filler is made of. All are required.
type FillerOptions struct {
	Source  Source
	Store   Adder
	Retry   push.Backoff // between attempts at what failed
	Metrics *Metrics
	Log     *slog.Logger
}

// Filler notes for whom devices are registered. Records are committed when all of them are
// noted, so none is lost, and one that comes twice does no harm. A group that has committed
// nothing begins at the first record that there is: so a table is filled for the first time,
// and once more when the group's offsets are removed.
type Filler struct {
	o       FillerOptions
	records []Record // polled, and not committed yet
}

// NewFiller makes a Filler.
func NewFiller(o FillerOptions) *Filler { return &Filler{o: o} }

// Run works until ctx ends, and returns ctx's error. What fails is logged and repeated. It
// may be called once.
func (f *Filler) Run(ctx context.Context) error {
	for failed := 0; ; {
		err := f.step(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			failed = 0
			continue
		}
		failed++
		f.o.Metrics.errors.Inc()
		pause := f.o.Retry.After(failed)
		f.o.Log.Error("audiences: noting users of apps failed, retrying", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// step is one round. What was polled stays until it is committed: the source hands out
// something else, and would commit both.
func (f *Filler) step(ctx context.Context) (err error) {
	if len(f.records) == 0 {
		if f.records, err = f.o.Source.Poll(ctx); err != nil || len(f.records) == 0 {
			return err
		}
	}
	uses := usesOf(f.records, time.Now())
	added, err := f.o.Store.Add(ctx, uses)
	f.o.Metrics.added.Add(float64(added))
	if err != nil {
		return err
	}
	if err := f.o.Source.Commit(ctx); err != nil {
		return err
	}
	f.o.Metrics.known.Add(float64(len(uses) - added))
	f.records = nil
	return nil
}

// usesOf are the uses that records tell of, each once, with the latest time of its records.
// What cannot be read tells of none: the registry says so of it.
func usesOf(records []Record, now time.Time) []Use {
	var uses []Use
	at := make(map[key]int) // in uses
	for i := range records {
		r := &records[i]
		var c record.Change
		if c.Read(r.Key, r.Value, now) != nil {
			continue
		}
		k := key{c.App(), c.User}
		if !Usable(k.app) || !Usable(k.user) {
			continue
		}
		if n, there := at[k]; there {
			if r.At.After(uses[n].At) { // their writers' clocks differ
				uses[n].At = r.At
			}
			continue
		}
		at[k] = len(uses)
		uses = append(uses, Use{App: k.app, User: k.user, At: r.At})
	}
	return uses
}

// Metrics are the figures of a Filler.
type Metrics struct {
	added, known prometheus.Counter
	errors       prometheus.Counter
	lag          prometheus.Gauge
}

// SetLag says how many records of push.users are still to be read.
func (m *Metrics) SetLag(records int64) { m.lag.Set(float64(records)) }

// NewMetrics registers the figures with reg, or nowhere when reg is nil. It panics when they
// are registered already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	noted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "push_registry_audience_users_total",
		Help: "Users of apps that records of push.users told of, by whether they were noted before: added, known.",
	}, []string{"result"})
	m := &Metrics{added: noted.WithLabelValues("added"), known: noted.WithLabelValues("known"),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "push_registry_audience_errors_total", Help: "Times that noting users of apps failed and was tried again."}),
		lag:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "push_registry_audience_lag_records", Help: "Records of push.users whose users of apps are still to be noted, all partitions."})}
	m.lag.Set(math.Inf(1)) // until it is known
	if reg != nil {
		reg.MustRegister(noted, m.errors, m.lag)
	}
	return m
}
