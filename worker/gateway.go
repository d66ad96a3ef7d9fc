package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/gateway/firsts"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
)

// GatewayOptions are the options of a gateway. Config must be valid and pass
// CheckGateway; Config, Log and Metrics are required.
type GatewayOptions struct {
	Config  *configs.Config
	Log     *slog.Logger
	Metrics *prometheus.Registry
	// Dial is as that of Options, to Kafka, and to Redis where senders have limits or repeats
	// are known.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OpenStatus is as that of Options.
	OpenStatus func(ctx context.Context, o status.Options) (Status, error)
	// Listen listens for callers; nil = TCP at gateway.listen.
	Listen func() (net.Listener, error)
	// Listening, if set, is told the address for callers, once.
	Listening func(net.Addr)
	// Users changes and reads users; nil = neither. The caller closes it, when RunGateway
	// has returned.
	Users *gateway.Users
	// UserLimits tells how limits stand for users; nil = that is not told. It stays the caller's.
	UserLimits gateway.UserLimits
	// Topics, if set, are used in place of those in Cassandra where the configuration has topics.
	Topics gateway.Topics
	// Fanouts, if set, are used in place of those in Cassandra where the configuration has
	// fan-outs. Then Topics must be set too, or neither.
	Fanouts fanout.Records
	// AppUsers, if set, is used in place of the table in Cassandra where the configuration has
	// messages to all users of apps.
	AppUsers AppUsers
	// Inboxes, if set, are used in place of those in Cassandra where the configuration has some.
	Inboxes InboxStore
	// InboxLimits say what of an inbox may be shown; nil = all. They stay the caller's.
	InboxLimits gateway.InboxLimits
	// Clicks, if set, is used in place of the table in Cassandra where the configuration has clicks.
	Clicks ClickStore
	// Journal, if set, is used in place of the table in Cassandra where a lane has a journal.
	Journal JournalStore
	// OpenTables connects to the tables of topics, of inboxes, of clicks and of journals; nil = in Cassandra.
	OpenTables func(ctx context.Context, o status.Options) (Tables, error)
	// WrapProducer, if set, may replace what writes to Kafka.
	WrapProducer func(gateway.Producer) gateway.Producer
}

// errStopping is the state of a gateway that takes no new requests.
var errStopping = errors.New("stopping")

// RunGateway answers callers until ctx ends, and then what is under way. It does not wait
// for Kafka or the status store: what needs one that is away is answered 503, /readyz
// names it, and Kafka's absence makes the gateway unready.
func RunGateway(ctx context.Context, o GatewayOptions) error {
	g, err := o.open()
	if err != nil {
		return err
	}
	defer g.close()
	stopAdmin, err := startAdmin("gateway.admin_listen", o.Config.Gateway.AdminListen, o.Config.Admin.PProf, o.Log, o.Metrics, g.health)
	if err != nil {
		return err
	}
	defer stopAdmin()
	listener, err := o.listen()
	if err != nil {
		return fmt.Errorf("gateway.listen: %w", err)
	}

	watching, stopWatching := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stopWatching()
	g.watch(watching, &watches)
	// Until what is under way is answered, and Kafka has said of all that it has it or not.
	inRedis, leaveRedis := context.WithCancel(context.WithoutCancel(ctx))
	defer leaveRedis()
	if g.quotas != nil {
		watches.Go(func() { g.quotas.Run(inRedis) })
	}
	if g.firsts != nil {
		watches.Go(func() { g.firsts.Run(inRedis) })
	}
	stopTelling := g.tellLimits(ctx)
	defer stopTelling()

	server := wiring.GatewayServer(o.Config)
	server.TLS = g.certificate.Mutual()
	s := g.gateway.Serve(listener, server)
	o.Log.Info("serving callers", "at", s.Addr().String(), "tls", g.certificate != nil, "keys", g.callers.Len())
	if n := g.callers.ByCertificate(); n > 0 && o.Config.Gateway.TLS.ClientCAFile == "" {
		o.Log.Warn("callers are known by certificates, which nobody is asked for: gateway.tls.client_ca_file is not set", "callers", n)
	}
	if o.Listening != nil {
		o.Listening(s.Addr())
	}
	select {
	case <-ctx.Done():
	case err = <-s.Ended():
	}
	g.health.set("serving", errStopping)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Config.Gateway.Drain)
	defer cancel()
	s.Close(drain)
	stopTelling() // before its last record could not be sent any more
	g.sender.Close(drain)
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving callers: %w", err)
	}
	return ctx.Err()
}

func (o *GatewayOptions) listen() (net.Listener, error) {
	if o.Listen != nil {
		return o.Listen()
	}
	return net.Listen("tcp", o.Config.Gateway.Listen)
}

// openGateway is a gateway and what it has open.
type openGateway struct {
	*GatewayOptions
	health  *health
	aside   *health // what makes the gateway unready to nobody who sends
	callers *gateway.Callers
	metrics *gateway.Metrics
	sender  *kafka.Sender
	admin   *kafka.Admin
	rows    *lateRows
	redis   shards.Client // of limits, also of receivers, and of repeats; nil = there are none
	quotas  *quota.Quotas
	firsts  *firsts.Store        // nil = repeats are not looked for
	tables  *lateTables          // nil = it has no topics, or those of Topics
	topics  *subscriptions.Store // nil like tables
	notes   *fanout.TableNotes   // nil = it takes no messages to topics, or has those of Fanouts
	users   *audiences.Store     // nil = it takes no messages to users of apps, or has those of AppUsers
	// Of inboxes; nil = the gateway has none. The tables are nil with those of Inboxes, too.
	inbox       *gateway.Inbox
	inboxStore  InboxStore
	inboxTables *lateTables
	clicks      *lateTables  // of what apps report; nil = nothing is taken, or it is in Clicks
	reports     ClickStore   // nil = nothing is taken
	noted       *lateTables  // of journals; nil = there are none, or they are in Journal
	journal     JournalStore // nil = there are none
	status      status.Options
	names       *segments.Names // nil = nothing is sent to users in a segment
	closeNames  func()          // nil like names
	gateway     *gateway.Gateway
	certificate *wiring.Certificate // nil = without TLS
}

// open makes everything that needs no server.
func (o *GatewayOptions) open() (g *openGateway, err error) {
	c := o.Config
	g = &openGateway{GatewayOptions: o, health: newHealth("kafka"), aside: newHealth("cassandra", "keys"), rows: &lateRows{err: errNotYet}}
	options, err := wiring.Kafka(c, o.Log)
	if err != nil {
		return nil, err
	}
	options.Dial = o.Dial
	if g.status, err = wiring.Cassandra(c, o.Metrics, o.Log); err != nil {
		return nil, err
	}
	signer, err := wiring.Signer(c)
	if err != nil {
		return nil, &ConfigError{"gateway.receipts_file", err}
	}
	confidential, err := wiring.Confidential(c)
	if err != nil {
		return nil, &ConfigError{"gateway.confidential.keys_file", err}
	}
	if g.callers, err = gateway.OpenCallers(c.Gateway.KeysFile); err != nil {
		return nil, &ConfigError{"gateway.keys_file", err}
	}
	if g.certificate, err = wiring.OpenCertificate(&c.Gateway.TLS); err != nil {
		return nil, &ConfigError{"gateway.tls", err}
	}
	g.health.tellInsecure(c, o.Log)
	g.health.tell(func() []string {
		_, lines := g.aside.report()
		return lines
	})
	g.metrics = gateway.NewMetrics(o.Metrics)
	g.aside.set("keys", nil)
	g.metrics.Keys(g.callers.Len(), nil)
	opened := g
	defer func() {
		if err != nil {
			opened.closeAsked()
		}
	}()
	if err := g.openRedis(); err != nil {
		return nil, err
	}
	if err := g.openNames(); err != nil {
		return nil, err
	}
	if g.admin, err = kafka.NewAdmin(options); err != nil {
		return nil, err
	}
	if g.sender, err = kafka.NewSender(options, wiring.GatewaySender(c)); err != nil {
		g.admin.Close()
		return nil, err
	}
	parts := g.parts(signer)
	parts.Confidential = confidential
	g.gateway = gateway.New(parts)
	return g, nil
}

// openRedis makes what is in Redis: the limits of senders, if there are any, and the first
// records of messages. It connects to nothing yet.
func (g *openGateway) openRedis() error {
	limits, repeats := &g.Config.Gateway.Limits, g.Config.Gateway.Repeats > 0
	if !limits.Any() && !limits.AnyRecipients() && !repeats {
		return nil
	}
	o, err := wiring.Redis(g.Config)
	if err != nil {
		return err
	}
	o.Dialer = g.Dial
	if g.redis, err = shards.Open(o); err != nil {
		return err
	}
	if repeats {
		if err := g.openFirsts(); err != nil {
			return err
		}
	}
	if limits.Any() {
		return g.openQuotas()
	}
	return nil
}

func (g *openGateway) openFirsts() (err error) {
	o := wiring.Firsts(g.Config, g.Log)
	o.Tell = func(err error) { g.aside.set("repeats", err) }
	g.aside.set("repeats", nil)
	if g.firsts, err = firsts.New(g.redis, o); err != nil {
		return err
	}
	return g.Metrics.Register(g.firsts)
}

func (g *openGateway) openQuotas() (err error) {
	quotas := wiring.Quotas(g.Config, g.Log)
	quotas.Tell = func(err error) { g.aside.set("limits", err) }
	g.aside.set("limits", nil)
	if g.quotas, err = quota.New(g.redis, quotas); err != nil {
		return err
	}
	return g.Metrics.Register(g.quotas)
}

// closeAsked closes what is asked and what does not begin anything by itself.
func (g *openGateway) closeAsked() {
	if g.redis != nil {
		_ = g.redis.Close() // nothing is under way
	}
	if g.closeNames != nil {
		g.closeNames()
	}
}

// parts are what the gateway is made of.
func (g *openGateway) parts(signer *gateway.Signer) gateway.Options {
	parts := wiring.Gateway(g.Config)
	parts.Producer = senderProducer{g.sender}
	parts.Users, parts.UserLimits, parts.Topics, parts.Quotas = g.Users, g.UserLimits, g.topicsOf(), g.quotas
	if g.firsts != nil {
		parts.Firsts = g.firsts
	}
	if parts.Fanouts = g.fanoutsOf(parts.Topics); g.Config.Gateway.Limits.AnyRecipients() {
		parts.Recipients = wiring.Recipients(g.Config, g.redis)
	}
	g.openInbox()
	parts.Inbox = g.inbox
	parts.Clicks, parts.Journal = g.clicksOf(), g.journalOf()
	if g.WrapProducer != nil {
		parts.Producer = g.WrapProducer(parts.Producer)
	}
	parts.Offsets, parts.Rows = laneOffsets{g.admin, g.Config}, g.rows
	parts.Callers, parts.Signer, parts.Metrics, parts.Log = g.callers, signer, g.metrics, g.Log
	return parts
}

// close closes what serving does not: the sender is closed with it.
func (g *openGateway) close() {
	g.sender.Close(context.Background()) // nothing is left in it
	g.admin.Close()
	g.rows.close()
	g.closeAsked()
	for _, tables := range []*lateTables{g.tables, g.inboxTables, g.clicks, g.noted} {
		if tables != nil {
			tables.close()
		}
	}
}

// watch looks for the servers, and at the files that may change, until ctx ends.
func (g *openGateway) watch(ctx context.Context, watches *sync.WaitGroup) {
	c := g.Config
	if g.names != nil {
		watches.Go(func() { g.watchNames(ctx) })
	}
	watches.Go(func() {
		var topics []string
		for _, l := range wiring.GatewayLanes(c) {
			topics = append(topics, l.Topic)
		}
		if c.Gateway.Fanout.Enabled {
			topics = append(topics, fanout.JobsTopic)
		}
		if connect(ctx, g.Log, g.health, "kafka", strings.Join(c.Kafka.Brokers, ","), func(ctx context.Context) error {
			return limited(ctx, c.Kafka.CommitTimeout, func(ctx context.Context) error { return g.admin.CheckTopics(ctx, topics...) })
		}) == nil {
			checkStore(ctx, g.health, "kafka", g.admin.Ping)
		}
	})
	watches.Go(func() {
		open := g.OpenStatus
		if open == nil {
			open = openCassandra
		}
		var store Status
		err := connect(ctx, g.Log, g.aside, "cassandra", strings.Join(c.Cassandra.Hosts, ","), func(ctx context.Context) error {
			err := limited(ctx, 2*c.Cassandra.Timeout, func(ctx context.Context) (err error) {
				store, err = open(ctx, g.status)
				return err
			})
			g.rows.set(store, err)
			return err
		})
		if s, ok := store.(interface{ Ping(context.Context) error }); err == nil && ok {
			checkStore(ctx, g.aside, "cassandra", s.Ping)
		}
	})
	g.watchTables(ctx, watches)
	g.watchInbox(ctx, watches)
	g.watchClicks(ctx, watches)
	g.watchJournal(ctx, watches)
	watches.Go(func() {
		g.callers.Watch(ctx, c.Gateway.ReloadKeys, func(err error) {
			g.metrics.Keys(g.callers.Len(), err)
			g.aside.set("keys", err)
			if err != nil {
				g.Log.Error("callers' keys are not read; the former ones stay in force", "error", err)
				return
			}
			g.Log.Info("callers' keys are in force", "keys", g.callers.Len())
		})
	})
	if g.certificate != nil {
		watches.Go(func() { g.watchCertificate(ctx) })
	}
}

// senderProducer is a Sender as the gateway needs it.
type senderProducer struct{ sender *kafka.Sender }

// Produce implements gateway.Producer.
func (p senderProducer) Produce(r gateway.Record, done func(gateway.Place, error)) {
	sent := kafka.Sent{Topic: r.Topic, Key: r.Key, Value: r.Value, At: r.At}
	sent.Headers = headersOf(r.Traceparent, r.Admitted)
	p.sender.Send(&sent, func(at kafka.Offset, err error) {
		if errors.Is(err, kafka.ErrSenderFull) {
			err = gateway.ErrBufferFull
		}
		done(gateway.Place(at), err)
	})
}

// headersOf are the headers of a record of a gateway or a fan-out.
func headersOf(traceparent string, admitted bool) (headers []kafka.Header) {
	if traceparent != "" {
		headers = append(headers, kafka.Header{Key: "traceparent", Value: []byte(traceparent)})
	}
	if admitted {
		headers = append(headers, kafka.Header{Key: kafka.HeaderAdmitted, Value: []byte("1")})
	}
	return headers
}

// laneOffsets is the progress of lanes' groups.
type laneOffsets struct {
	admin  *kafka.Admin
	config *configs.Config
}

// Topic implements gateway.Offsets.
func (o laneOffsets) Topic(ctx context.Context, lane string) ([16]byte, error) {
	l := o.config.Lane(lane)
	if l == nil {
		return [16]byte{}, fmt.Errorf("there is no lane %s", lane)
	}
	return o.admin.TopicID(ctx, l.Topic)
}

// Progress implements gateway.Offsets.
func (o laneOffsets) Progress(ctx context.Context, lane string) (gateway.Progress, error) {
	l := o.config.Lane(lane)
	if l == nil {
		return gateway.Progress{}, fmt.Errorf("there is no lane %s", lane)
	}
	p, err := o.admin.Progress(ctx, o.config.Kafka.LaneGroup(lane), l.Topic)
	return gateway.Progress(p), err
}
