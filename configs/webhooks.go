package configs

import (
	"strconv"
	"strings"
	"time"
)

// Webhooks is `pushgateway webhooks`, and who is told of the ends of notifications.
type Webhooks struct {
	Senders     []string      `yaml:"senders"`
	File        string        `yaml:"file"`
	Reload      time.Duration `yaml:"reload" check:"min=100ms,max=1h"`
	AdminListen string        `yaml:"admin_listen" check:"listen"` // empty = none
	Timeout     time.Duration `yaml:"timeout" check:"min=100ms,max=1m"`
	AtOnce      int           `yaml:"at_once" check:"min=1,max=1000"` // for each sender
	Window      int           `yaml:"window" check:"min=1,max=10000"` // for each partition
	Keep        time.Duration `yaml:"keep" check:"min=1m,max=720h"`
}

// listener is an address to listen at, and its key.
type listener struct{ path, at string }

// webhooksTopics begins the names of the topics of webhooks.
const webhooksTopics = "push.webhooks"

func ofWebhooks(name string) bool { return strings.HasPrefix(name, webhooksTopics) }

// WebhooksGroup is the consumer group of one of the topics of webhooks.
func (k *Kafka) WebhooksGroup(topic string) string { return k.Group + "." + topic }

// WebhooksFile reads where senders want to be told.
func (w *Webhooks) WebhooksFile() (Secret, error) { return ReadSecret(w.File) }

func (c *Config) checkWebhooks(ps *Problems) {
	w := &c.Gateway.Webhooks
	first := map[string]int{} // by what Kafka's metrics make of a topic's name, in which two topics must differ
	for i, s := range w.Senders {
		at, name := "gateway.webhooks.senders["+strconv.Itoa(i)+"]", strings.ReplaceAll(s, ".", "_")
		if !senderName.MatchString(s) {
			ps.add(at, "must be a sender: 1 to 64 letters, digits, dots, underscores and dashes")
		} else if n, twice := first[name]; twice {
			ps.add(at, "is told as gateway.webhooks.senders[%d] already, or Kafka would take their topics for one another: dots are underscores in its metrics", n)
		} else {
			first[name] = i
		}
	}
	if len(w.Senders) == 0 {
		return
	}
	if w.Timeout >= c.Send.Drain {
		ps.add("gateway.webhooks.timeout", "%s must be less than send.drain, %s: calls would be cut off at every rebalance", w.Timeout, c.Send.Drain)
	}
	if w.Keep >= c.Kafka.Topics.Retention {
		ps.add("gateway.webhooks.keep", "%s must be less than kafka.topics.retention, %s: Kafka would throw away what is still to be told", w.Keep, c.Kafka.Topics.Retention)
	}
	for i, l := range c.Lanes {
		at := "lanes[" + strconv.Itoa(i) + "]"
		if ofWebhooks(l.Topic) {
			ps.add(at+".topic", "%s is among the topics of webhooks, %s", l.Topic, webhooksTopics)
		}
		if ofWebhooks(l.Name) {
			ps.add(at+".name", "%s would have a consumer group of webhooks, which are named after their topics, %s", l.Name, webhooksTopics)
		}
	}
}

// CheckWebhooks is what `pushgateway webhooks` needs beyond a valid configuration: that
// somebody is told, and every file that it reads there.
func (c *Config) CheckWebhooks() error {
	var ps Problems
	try := func(path string, err error) {
		if err != nil {
			ps.add(path, "%v", err)
		}
	}
	w := &c.Gateway.Webhooks
	if len(w.Senders) == 0 {
		ps.add("gateway.webhooks.senders", "must not be empty: workers tell nobody anything")
	}
	if w.File == "" {
		ps.add("gateway.webhooks.file", "must not be empty: it has the endpoints and their secrets")
	} else {
		_, err := w.WebhooksFile()
		try("gateway.webhooks.file", err)
	}
	_, err := c.Kafka.TLS.Config()
	try("kafka.tls", err)
	_, err = c.Kafka.SASL.Password()
	try("kafka.sasl.password_file", err)
	return ps.orNil()
}
