// Package worker runs the fleet's processes: the worker, which works on all
// configured lanes, the registry, which keeps Redis filled with users, and the
// gateway, which takes notifications over HTTP. The commands pass it a
// configuration; package pipeline has the way of a notification.
//
//	options.go      what a process is given
//	group.go        Run: one worker, opened, run and closed in order
//	lane.go         one half of a lane: source, pipeline, producer
//	stores.go       Kafka, Redis, the status store: waited for, then watched
//	connect.go      how a store is waited for
//	routes.go       the clients of all apps
//	providers.go    how each platform's are opened
//	credentials.go  keys and certificates, read again when they change
//	poolmetrics.go  metrics of their connections
//	watchdog.go     ends a process whose partition stands still
//	events.go       push.events
//	state.go        what the worker is at, told there
//	filters.go      the Bloom filters' windows
//	rules.go        limits, preferences and countries, and their reload
//	segments.go     who is in which segment
//	gateway.go      RunGateway: callers over HTTP into the lanes
//	gateway_inbox.go
//	                its inboxes
//	certificate.go  its certificate, read again when it is renewed
//	registry.go     RunRegistry: push.users into Redis
//	follow.go       how it reads push.users
//	admin.go        /metrics, /livez, /readyz
package worker

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/status"
)

// Status is the status store as a worker needs it. It is closed at the end.
type Status interface {
	pipeline.Status
	pipeline.Ledger
	Close()
}

// Inboxes are where lanes keep messages for users who look for them.
type Inboxes interface {
	stages.Inboxes
	Close()
}

// Journals are where lanes note which messages users were meant to get.
type Journals interface {
	stages.Journals
	Close()
}

// Options are the options of a worker. Config must be valid; Config, Log, Metrics
// and Exit are required.
type Options struct {
	Config  *configs.Config
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Version string // of the build, for the log
	// Reload reads the configuration again, as it is by now; nil = it never changes.
	// Only its limits, preferences and countries are put in force.
	Reload func() (*configs.Config, error)
	// ReloadEvery is how often; 0 = 10 s.
	ReloadEvery time.Duration
	// Exit ends the process at once with this status, if a part of it is stuck and
	// cannot be waited for: os.Exit.
	Exit func(status int)

	// Dial opens connections to Kafka and Redis in place of the network, TLS included: to
	// servers inside the process. nil = TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OpenStatus opens the status store; nil = Cassandra. It is called again
	// until it succeeds.
	OpenStatus func(ctx context.Context, o status.Options) (Status, error)
	// OpenInboxes opens the inboxes where a lane has some; nil = in Cassandra. It is called
	// again until it succeeds.
	OpenInboxes func(ctx context.Context, o status.Options) (Inboxes, error)
	// OpenJournals opens the journals where a lane has some; nil = in Cassandra. It is called
	// again until it succeeds.
	OpenJournals func(ctx context.Context, o status.Options) (Journals, error)
	// Observe, if set, sees every group of answers before the pipeline does, in
	// several goroutines at once.
	Observe func([]*pipeline.Delivery)
	// Wrap, if set, may replace what a lane's pipeline works with, before it is
	// made. stats are those of a route's pool; zero = it has none.
	Wrap func(o pipeline.Options, stats func(push.Route) h2.Stats) pipeline.Options
}

// openCassandra is what OpenStatus is by default.
func openCassandra(ctx context.Context, o status.Options) (Status, error) {
	c, err := status.OpenCassandra(ctx, o)
	if err != nil {
		return nil, err // not the nil pointer: as an interface it would be something
	}
	return c, nil
}
