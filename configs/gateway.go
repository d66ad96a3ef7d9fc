package configs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Gateway configures `pushgateway serve`.
type Gateway struct {
	Listen          string        `yaml:"listen" check:"required,listen"`
	AdminListen     string        `yaml:"admin_listen" check:"listen"` // empty = none
	TLS             ServerTLS     `yaml:"tls"`
	Insecure        bool          `yaml:"insecure"` // no TLS beyond this machine is accepted
	KeysFile        string        `yaml:"keys_file"`
	ReloadKeys      time.Duration `yaml:"reload_keys" check:"min=100ms,max=1h"`
	ReceiptsFile    string        `yaml:"receipts_file"`
	Registry        bool          `yaml:"registry"`                        // users can be read, from Redis
	Repeats         time.Duration `yaml:"repeats" check:"min=0s,max=720h"` // how long Redis has where first records are; 0 = not at all
	Limits          GatewayLimits `yaml:"limits"`
	Topics          bool          `yaml:"topics"` // users can subscribe to topics, in Cassandra
	Inbox           bool          `yaml:"inbox"`  // users can read what lanes keep for them, in Cassandra
	InboxWaits      int           `yaml:"inbox_waits" check:"min=1,max=1000000"`
	Audiences       bool          `yaml:"audiences"` // messages can be sent to all users of an app, in Cassandra
	Confidential    Confidential  `yaml:"confidential"`
	Clicks          Clicks        `yaml:"clicks"`
	Lanes           []GatewayLane `yaml:"lanes"` // empty = each lane's name
	Confirm         time.Duration `yaml:"confirm" check:"min=100ms,max=1m"`
	Linger          time.Duration `yaml:"linger" check:"min=0s,max=1s"`
	BufferedRecords int           `yaml:"buffered_records" check:"min=1,max=10000000"`
	BufferedBytes   Bytes         `yaml:"buffered_bytes" check:"min=1MiB,max=16GiB"`
	Status          time.Duration `yaml:"status" check:"min=100ms,max=1m"`
	MessageBytes    Bytes         `yaml:"message_bytes" check:"min=64KiB,max=16MiB"`
	BatchLines      int           `yaml:"batch_lines" check:"min=1,max=1000"`
	BatchBytes      Bytes         `yaml:"batch_bytes" check:"min=64KiB,max=16MiB"`
	Receipts        int           `yaml:"receipts" check:"min=1,max=1000"`
	Requests        int           `yaml:"requests" check:"min=1,max=1000000"`
	Batches         int           `yaml:"batches" check:"min=1,max=10000"`
	Connections     int           `yaml:"connections" check:"min=1,max=1000000"`
	HeaderBytes     Bytes         `yaml:"header_bytes" check:"min=4KiB,max=1MiB"`
	HeaderTimeout   time.Duration `yaml:"header_timeout" check:"min=100ms,max=5m"`
	BodyTimeout     time.Duration `yaml:"body_timeout" check:"min=100ms,max=5m"`
	AnswerTimeout   time.Duration `yaml:"answer_timeout" check:"min=100ms,max=10m"`
	IdleTimeout     time.Duration `yaml:"idle_timeout" check:"min=1s,max=1h"`
	Drain           time.Duration `yaml:"drain" check:"min=100ms,max=10m"`
	Fanout          Fanout        `yaml:"fanout"`
	Webhooks        Webhooks      `yaml:"webhooks"`
	Dashboard       TeamDashboard `yaml:"dashboard"`
}

// Confidential is what messages to confidential topics need: their texts are not pushed, and
// lie encrypted.
type Confidential struct {
	KeysFile string `yaml:"keys_file"` // empty = there are no such messages
	Title    string `yaml:"title" check:"required"`
}

// Secret reads the keys of confidential texts.
func (c *Confidential) Secret() (Secret, error) { return ReadSecret(c.KeysFile) }

// mostTitle is the longest title of notifications that say nothing, in bytes.
const mostTitle = 200

func (c *Confidential) check(ps *Problems, g *Gateway) {
	if len(c.Title) > mostTitle || !utf8.ValidString(c.Title) || strings.TrimSpace(c.Title) == "" || strings.ContainsFunc(c.Title, unicode.IsControl) {
		ps.add("gateway.confidential.title", "has %d bytes, want a text in UTF-8 without control characters, of at most %d", len(c.Title), mostTitle)
	}
	if c.KeysFile != "" && (!g.Inbox || !g.Fanout.Enabled) {
		ps.add("gateway.confidential.keys_file", "needs gateway.inbox and gateway.fanout.enabled: messages to confidential topics are read in inboxes")
	}
}

// Clicks are tokens in what is pushed, by which apps report what users do with it, in
// Cassandra.
type Clicks struct {
	Enabled bool          `yaml:"enabled"`
	Valid   time.Duration `yaml:"valid" check:"min=1h,max=8760h"` // of a token
	Kept    time.Duration `yaml:"kept" check:"min=24h,max=8760h"` // of what is reported
	Rate    int           `yaml:"rate" check:"min=1,max=1000000"` // reports a second
}

// TeamDashboard is `pushgateway dashboard`. Its keys and its certificate are the gateway's.
type TeamDashboard struct {
	Listen string `yaml:"listen" check:"required,listen"`
}

// Fanout is `pushgateway fanout`, and whether there are fan-outs at all.
type Fanout struct {
	Enabled       bool          `yaml:"enabled"`
	AdminListen   string        `yaml:"admin_listen" check:"listen"` // empty = none
	Lag           int64         `yaml:"lag" check:"min=1,max=1000000000"`
	LagTime       time.Duration `yaml:"lag_time" check:"min=0s,max=1h"`   // 0 = lag alone
	Rate          int           `yaml:"rate" check:"min=0,max=100000000"` // 0 = no bound
	OpenChunks    int           `yaml:"open_chunks" check:"min=1,max=1024"`
	AtOnce        int           `yaml:"at_once" check:"min=1,max=256"`
	Page          int           `yaml:"page" check:"min=1,max=5000"`
	InFlight      int           `yaml:"in_flight" check:"min=1,max=1000000"`
	InFlightBytes Bytes         `yaml:"in_flight_bytes" check:"min=1MiB,max=4GiB"`
}

// FanoutGroup is the consumer group of one of the topics of fan-outs.
func (k *Kafka) FanoutGroup(topic string) string { return k.Group + "." + topic }

// GatewayLane says which lane takes a service type. The mode is the lane's own.
type GatewayLane struct {
	ServiceType string `yaml:"service_type" check:"required,name"`
	Lane        string `yaml:"lane" check:"required,name"`
}

// GatewayLimits are how many messages senders may send through all gateways together.
type GatewayLimits struct {
	Default  SenderLimits    `yaml:"default"` // of those that Senders does not name
	Senders  []GatewaySender `yaml:"senders"`
	Gateways int             `yaml:"gateways" check:"min=1,max=1000"` // for as long as Redis has not told
}

// SenderLimits are messages in each window, and receivers in a day; 0 = no limit.
type SenderLimits struct {
	Second int `yaml:"second" check:"min=0,max=1000000000"`
	Minute int `yaml:"minute" check:"min=0,max=1000000000"`
	Hour   int `yaml:"hour" check:"min=0,max=1000000000"`
	Day    int `yaml:"day" check:"min=0,max=1000000000"`
	// Recipients are receivers of messages to topics, in a day.
	Recipients int `yaml:"recipients" check:"min=0,max=1000000000"`
}

// GatewaySender has the limits of one sender, in place of the default ones.
type GatewaySender struct {
	Sender string       `yaml:"sender" check:"required"`
	Limits SenderLimits `yaml:"limits"`
}

// Any reports whether anybody has a limit of messages.
func (l *GatewayLimits) Any() bool {
	return l.Default.messages() || slices.ContainsFunc(l.Senders, func(s GatewaySender) bool { return s.Limits.messages() })
}

// messages reports whether messages are limited.
func (l SenderLimits) messages() bool {
	l.Recipients = 0
	return l != SenderLimits{}
}

// AnyRecipients reports whether anybody has a limit of receivers.
func (l *GatewayLimits) AnyRecipients() bool {
	return l.Default.Recipients > 0 || slices.ContainsFunc(l.Senders, func(s GatewaySender) bool { return s.Limits.Recipients > 0 })
}

// senderName is what the file of keys allows as a sender.
var senderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (l *GatewayLimits) check(ps *Problems) {
	l.Default.check(ps, "gateway.limits.default")
	first := map[string]int{}
	for i, s := range l.Senders {
		at := "gateway.limits.senders[" + strconv.Itoa(i) + "]"
		if s.Sender != "" && !senderName.MatchString(s.Sender) {
			ps.add(at+".sender", "must be a sender of the file of keys: 1 to 64 letters, digits, dots, underscores and dashes")
		} else if n, twice := first[s.Sender]; twice {
			ps.add(at+".sender", "has its limits in gateway.limits.senders[%d] already", n)
		} else {
			first[s.Sender] = i
		}
		s.Limits.check(ps, at+".limits")
	}
}

// check finds a limit that can never be used up, because that of a longer window is lower.
func (l *SenderLimits) check(ps *Problems, path string) {
	shorter, of := 0, ""
	for _, w := range []struct {
		name  string
		limit int
	}{{"second", l.Second}, {"minute", l.Minute}, {"hour", l.Hour}, {"day", l.Day}} {
		if w.limit <= 0 {
			continue
		}
		if w.limit < shorter {
			ps.add(path+"."+w.name, "%d must be at least the limit per %s, %d, which could never be used up", w.limit, of, shorter)
			return
		}
		shorter, of = w.limit, w.name
	}
}

// ServerTLS is how a listener is secured. No files = not at all.
type ServerTLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"` // signs callers' certificates; "" = callers have keys
}

// ClientCAs reads who signs callers' certificates; nil = nobody does.
func (t *ServerTLS) ClientCAs() (*x509.CertPool, error) {
	if t.ClientCAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA of callers: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("client_ca_file %s has no certificate in PEM", t.ClientCAFile)
	}
	return pool, nil
}

// Certificate reads the certificate and its key now; nil without files. The error names
// the file at fault, and nothing of its content.
func (t *ServerTLS) Certificate() (*tls.Certificate, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	cert, err := os.ReadFile(t.CertFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	key, err := ReadSecret(t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate's key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, []byte(key.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s do not match: %w", t.CertFile, t.KeyFile, err)
	}
	return &pair, nil
}

// ReceiptsSecret reads the secret that signs receipts.
func (g *Gateway) ReceiptsSecret() (Secret, error) { return ReadSecret(g.ReceiptsFile) }

// exposed reports whether the keys of those who come to an address go over a network
// without TLS.
func (g *Gateway) exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return g.TLS.CertFile == "" && (err != nil || !isLoopback(host))
}

// ServiceLanes are the service types and their lanes, in the order of preference.
func (c *Config) ServiceLanes() []GatewayLane {
	if len(c.Gateway.Lanes) > 0 {
		return c.Gateway.Lanes
	}
	lanes := make([]GatewayLane, len(c.Lanes))
	for i, l := range c.Lanes {
		lanes[i] = GatewayLane{l.Name, l.Name}
	}
	return lanes
}

// Lane is the lane of this name; nil = there is none.
func (c *Config) Lane(name string) *Lane {
	for i := range c.Lanes {
		if c.Lanes[i].Name == name {
			return &c.Lanes[i]
		}
	}
	return nil
}

// fanoutTopics begins the names of the topics of fan-outs.
const fanoutTopics = "push.fanout"

func ofFanouts(name string) bool {
	return name == fanoutTopics || strings.HasPrefix(name, fanoutTopics+".")
}

func (c *Config) checkGateway(ps *Problems) {
	g := &c.Gateway
	if (g.TLS.CertFile == "") != (g.TLS.KeyFile == "") {
		ps.add("gateway.tls.cert_file", "and key_file must be set together")
	}
	if g.TLS.ClientCAFile != "" && g.TLS.CertFile == "" {
		ps.add("gateway.tls.client_ca_file", "needs cert_file and key_file: callers show certificates by TLS alone")
	}
	for _, l := range []listener{{"gateway.listen", g.Listen}, {"gateway.dashboard.listen", g.Dashboard.Listen}} {
		if checkGrammar(l.at, "listen") == "" && g.exposed(l.at) && !g.Insecure {
			ps.add(l.path, "%s is not a loopback address, and callers' keys would go over the network in plaintext: set gateway.tls, or gateway.insecure to true if nobody can listen", l.at)
		}
	}
	for _, l := range []struct{ path, at string }{{"admin.listen", c.Admin.Listen}, {"registry.listen", c.Registry.Listen}, {"gateway.listen", g.Listen}} {
		if l.at != "" && g.AdminListen != "" && collide(l.at, g.AdminListen) {
			ps.add("gateway.admin_listen", "must not use the port of %s, %s", l.path, l.at)
		}
		if l.path != "gateway.listen" && l.at != "" && collide(l.at, g.Listen) {
			ps.add("gateway.listen", "must not use the port of %s, %s", l.path, l.at)
		}
	}
	if wait := g.BodyTimeout + max(g.Confirm, g.Status); g.AnswerTimeout <= wait {
		ps.add("gateway.answer_timeout", "%s must be more than body_timeout + the longer of confirm and status, %s", g.AnswerTimeout, wait)
	}
	if g.HeaderTimeout > g.BodyTimeout {
		ps.add("gateway.header_timeout", "%s must be at most body_timeout, %s, which includes it", g.HeaderTimeout, g.BodyTimeout)
	}
	if wait := max(g.Confirm, g.Status); g.Drain < wait {
		ps.add("gateway.drain", "%s must be at least confirm and status, %s: what is under way would be cut off", g.Drain, wait)
	}
	if g.Repeats > 0 && g.Repeats < time.Second {
		ps.add("gateway.repeats", "%s must be 0s, or at least 1s", g.Repeats)
	}
	if c.Gateway.Linger >= g.Confirm {
		ps.add("gateway.linger", "%s must be less than confirm, %s", g.Linger, g.Confirm)
	}
	g.Limits.check(ps)
	g.Confidential.check(ps, g)
	if g.Clicks.Kept < g.Clicks.Valid {
		ps.add("gateway.clicks.kept", "%s must be at least valid, %s: a click that is reported again would not be known any more", g.Clicks.Kept, g.Clicks.Valid)
	}
	if g.Fanout.Enabled && !g.Topics {
		ps.add("gateway.fanout.enabled", "needs gateway.topics: fan-outs are to subscribers of topics")
	}
	if g.Audiences && !g.Fanout.Enabled {
		ps.add("gateway.audiences", "needs gateway.fanout.enabled: messages to all users of an app are fan-outs")
	}
	if f := &g.Fanout; f.InFlight < f.Page {
		ps.add("gateway.fanout.in_flight", "%d must be at least page, %d", f.InFlight, f.Page)
	}
	others := []listener{{"admin.listen", c.Admin.Listen}, {"registry.listen", c.Registry.Listen}, {"gateway.listen", g.Listen}, {"gateway.admin_listen", g.AdminListen}}
	for _, own := range []listener{{"gateway.fanout.admin_listen", g.Fanout.AdminListen}, {"gateway.webhooks.admin_listen", g.Webhooks.AdminListen}, {"gateway.dashboard.listen", g.Dashboard.Listen}} {
		for _, l := range others {
			if l.at != "" && own.at != "" && collide(l.at, own.at) {
				ps.add(own.path, "must not use the port of %s, %s", l.path, l.at)
			}
		}
		others = append(others, own)
	}
	c.checkWebhooks(ps)
	for i, l := range c.Lanes {
		at := "lanes[" + strconv.Itoa(i) + "]"
		if g.Fanout.Enabled && ofFanouts(l.Topic) {
			ps.add(at+".topic", "%s is among the topics of fan-outs, %s", l.Topic, fanoutTopics)
		}
		if g.Fanout.Enabled && ofFanouts(l.Name) {
			ps.add(at+".name", "%s would have a consumer group of fan-outs, which are named after their topics, %s", l.Name, fanoutTopics)
		}
	}
	taken := map[GatewayLane]int{} // by service type and mode
	for i, l := range c.ServiceLanes() {
		at := "gateway.lanes[" + strconv.Itoa(i) + "]"
		lane := c.Lane(l.Lane)
		if lane == nil {
			if checkGrammar(l.Lane, "name") == "" {
				ps.add(at+".lane", "there is no lane %s", l.Lane)
			}
			continue
		}
		key := GatewayLane{l.ServiceType, lane.Mode}
		if first, twice := taken[key]; twice && len(g.Lanes) > 0 {
			ps.add(at+".lane", "service type %s with mode %s goes to gateway.lanes[%d] already", l.ServiceType, lane.Mode, first)
			continue
		}
		taken[key] = i
	}
}

// CheckGateway is what `pushgateway serve` needs beyond a valid configuration: apps, who
// may call, the secret of receipts, and every file that it reads there, those of Redis only
// if it reads users or limits senders. The keys of apps are the workers' and are not opened.
func (c *Config) CheckGateway() error {
	var ps Problems
	if len(c.Apps) == 0 {
		ps.add("apps", "must have at least one app: without one, every message would be refused as unknown_app")
	}
	c.checkCalled(&ps, c.Gateway.Registry || c.Gateway.Limits.Any() || c.Gateway.Limits.AnyRecipients())
	return ps.orNil()
}

// CheckDashboard is what `pushgateway dashboard` needs beyond a valid configuration: who may
// log in, the secret that signs sessions, apps, which keys must be for, and every file that
// it reads there.
func (c *Config) CheckDashboard() error {
	var ps Problems
	if len(c.Apps) == 0 {
		ps.add("apps", "must have at least one app: a key opens the dashboard if it is for all of them")
	}
	c.checkCalled(&ps, true)
	return ps.orNil()
}

// checkCalled finds what is wrong with the files of those whom people call by keys, those of
// Redis only if it is used.
func (c *Config) checkCalled(ps *Problems, redis bool) {
	try := func(path string, err error) {
		if err != nil {
			ps.add(path, "%v", err)
		}
	}
	g := &c.Gateway
	if g.KeysFile == "" {
		ps.add("gateway.keys_file", "must not be empty: without it nobody may call")
	} else if _, err := os.Stat(g.KeysFile); err != nil {
		try("gateway.keys_file", err)
	}
	g.tryReceipts(ps, "receipts are signed")
	if g.Confidential.KeysFile != "" {
		_, err := g.Confidential.Secret()
		try("gateway.confidential.keys_file", err)
	}
	_, err := g.TLS.Certificate()
	try("gateway.tls", err)
	_, err = g.TLS.ClientCAs()
	try("gateway.tls.client_ca_file", err)
	c.openServers(try, redis)
}

// tryReceipts tries to read the secret of receipts, which is needed for something.
func (g *Gateway) tryReceipts(ps *Problems, why string) {
	if g.ReceiptsFile == "" {
		ps.add("gateway.receipts_file", "must not be empty: %s (openssl rand -base64 32)", why)
	} else if _, err := g.ReceiptsSecret(); err != nil {
		ps.add("gateway.receipts_file", "%v", err)
	}
}

// openServers tries to read the files by which Kafka and Cassandra are reached, and those of
// Redis if redis is set.
func (c *Config) openServers(try func(path string, err error), redis bool) {
	_, err := c.Kafka.TLS.Config()
	try("kafka.tls", err)
	_, err = c.Cassandra.TLS.Config()
	try("cassandra.tls", err)
	_, err = c.Kafka.SASL.Password()
	try("kafka.sasl.password_file", err)
	_, err = c.Cassandra.Password()
	try("cassandra.password_file", err)
	if redis {
		_, err = c.Redis.TLS.Config()
		try("redis.tls", err)
		_, err = c.Redis.Password()
		try("redis.password_file", err)
	}
}

// CheckFanout is what `pushgateway fanout` needs beyond a valid configuration: that there
// are fan-outs, and every file that it reads there, those of Redis only if senders have limits
// of receivers, and the secret of receipts only if it signs click tokens.
func (c *Config) CheckFanout() error {
	var ps Problems
	try := func(path string, err error) {
		if err != nil {
			ps.add(path, "%v", err)
		}
	}
	if !c.Gateway.Fanout.Enabled {
		ps.add("gateway.fanout.enabled", "must be true: without it there are no topics of fan-outs")
	}
	if c.Gateway.Clicks.Enabled {
		c.Gateway.tryReceipts(&ps, "click tokens are signed")
	}
	c.openServers(try, c.Gateway.Limits.AnyRecipients())
	return ps.orNil()
}
