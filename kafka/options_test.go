package kafka

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The client's errors and warnings keep their level in our log. Its info messages, which
// tell each step of a rebalance, are our debug messages, and it makes them only if our
// log shows those.
func TestTheClientsLog(t *testing.T) {
	for _, tt := range []struct {
		reads slog.Level
		asks  kgo.LogLevel
		told  map[kgo.LogLevel]string
	}{
		{slog.LevelDebug, kgo.LogLevelInfo, map[kgo.LogLevel]string{kgo.LogLevelError: "ERROR", kgo.LogLevelWarn: "WARN", kgo.LogLevelInfo: "DEBUG"}},
		{slog.LevelInfo, kgo.LogLevelWarn, map[kgo.LogLevel]string{kgo.LogLevelError: "ERROR", kgo.LogLevelWarn: "WARN", kgo.LogLevelInfo: ""}},
	} {
		for from, to := range tt.told {
			var b bytes.Buffer
			l := clientLog{slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: tt.reads}))}
			if got := l.Level(); got != tt.asks {
				t.Errorf("read from %v: got %v, want %v", tt.reads, got, tt.asks)
			}
			l.Log(from, "joined", "group", "g")
			line := b.String()
			if to == "" && line != "" || to != "" && (!strings.Contains(line, "level="+to) || !strings.Contains(line, `"kafka client: joined" group=g`)) {
				t.Errorf("%v, read from %v: got %q, want level %q", from, tt.reads, line, to)
			}
		}
	}
}

// Without any broker given, constructors return errors.
func TestNothingIsMadeWithoutBrokers(t *testing.T) {
	for what, make := range map[string]func(Options) error{
		"dlq":      func(o Options) error { _, err := NewDLQ(o, "push"); return err },
		"follower": func(o Options) error { _, err := NewFollower(o, "push", nil); return err },
		"consumer": func(o Options) error { _, err := NewConsumer(o, "push", "g"); return err },
		"writer":   func(o Options) error { _, err := NewWriter(o, WriterOptions{Topic: "push"}); return err },
		"audit":    func(o Options) error { _, err := newAudit(o, "push"); return err },
		"source": func(o Options) error {
			_, err := NewSource(o, SourceOptions{Topics: mainTopic("push"), Group: "g"})
			return err
		},
	} {
		if err := make(Options{}); err == nil || !strings.Contains(err.Error(), "no brokers") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Invalid options are refused before anything is connected; the defaults are valid.
func TestSourceOptionsThatCannotWork(t *testing.T) {
	retry := func(ts ...SourceTopic) func(*SourceOptions) { return func(o *SourceOptions) { o.Topics = ts } }
	for why, change := range map[string]func(*SourceOptions){
		"":                         func(*SourceOptions) {},
		" ":                        retry(SourceTopic{Name: "a", Kind: Retry, Delay: 1}, SourceTopic{Name: "b", Kind: Hold}),
		"no topic":                 func(o *SourceOptions) { o.Topics = nil },
		"no group":                 func(o *SourceOptions) { o.Group = "" },
		"negative batch":           func(o *SourceOptions) { o.BatchRecords = -1 },
		"negative bytes":           func(o *SourceOptions) { o.BatchBytes = -1 },
		"negative window":          func(o *SourceOptions) { o.OpenBatches = -1 },
		"negative confirms":        func(o *SourceOptions) { o.Confirms = -1 },
		"negative reread":          func(o *SourceOptions) { o.Reread = -1 },
		"negative linger":          func(o *SourceOptions) { o.Linger = -1 },
		"negative spread":          func(o *SourceOptions) { o.JoinWithin = -1 },
		"less open than a batch":   func(o *SourceOptions) { o.OpenRecords, o.BatchRecords = 9, 10 },
		"fewer bytes than a batch": func(o *SourceOptions) { o.OpenBytes, o.BatchBytes = 9, 10 },
		"a drain as long as the group's": func(o *SourceOptions) {
			o.Drain, o.Commit, o.Rebalance = 20*time.Second, 10*time.Second, 30*time.Second
		},
		"unknown balancer":              func(o *SourceOptions) { o.Balancer = "sticky" },
		"unknown protocol":              func(o *SourceOptions) { o.Protocol = "next" },
		"a topic without a name":        retry(SourceTopic{Kind: Hold}),
		"a topic twice":                 retry(SourceTopic{Name: "a", Kind: Hold}, SourceTopic{Name: "a", Kind: Hold}),
		"a topic of no kind":            retry(SourceTopic{Name: "a", Kind: Hold + 1}),
		"a lane's own beside another":   retry(SourceTopic{Name: "a"}, SourceTopic{Name: "b", Kind: Hold}),
		"a retry topic without a delay": retry(SourceTopic{Name: "a", Kind: Retry}),
		"a negative delay":              retry(SourceTopic{Name: "a", Kind: Retry, Delay: -1}),
		"a hold topic with a delay":     retry(SourceTopic{Name: "a", Kind: Hold, Delay: 1}),
	} {
		o := SourceOptions{Topics: mainTopic("push"), Group: "g"}
		change(&o)
		o = o.withDefaults()
		if err := o.check(); (err == nil) != (strings.TrimSpace(why) == "") {
			t.Errorf("%q: %v", why, err)
		}
	}
}

// The same holds for producers and writers, and for missing topic names.
func TestOptionsThatCannotWork(t *testing.T) {
	o := Options{Brokers: []string{"127.0.0.1:1"}}
	tiers := []Tier{{Name: "push.retry.30s", Delay: time.Second}}
	producer := func(po ProducerOptions) func() error {
		return func() error { _, err := NewProducer(o, po); return err }
	}
	for why, make := range map[string]func() error{
		"a producer without a topic":      producer(ProducerOptions{Tiers: tiers}),
		"one without a tier":              producer(ProducerOptions{Topic: "push"}),
		"one with a tier without a name":  producer(ProducerOptions{Topic: "push", Tiers: []Tier{{Delay: time.Second}}}),
		"one with a tier without a delay": producer(ProducerOptions{Topic: "push", Tiers: []Tier{{Name: "a"}}}),
		"feedback into the lane's topic":  producer(ProducerOptions{Topic: "push", Tiers: tiers, Feedback: "push"}),
		"events into the lane's topic":    producer(ProducerOptions{Topic: "push", Tiers: tiers, Events: "push"}),
		"a writer without a topic":        func() error { _, err := NewWriter(o, WriterOptions{}); return err },
		"a follower without a topic":      func() error { _, err := NewFollower(o, "", nil); return err },
		"a consumer without a topic":      func() error { _, err := NewConsumer(o, "", "g"); return err },
		"a consumer without a group":      func() error { _, err := NewConsumer(o, "push", ""); return err },
		"a dlq without a lane":            func() error { _, err := NewDLQ(o, ""); return err },
		"a password without its user": func() error {
			_, err := NewAdmin(Options{Brokers: o.Brokers, SASL: &SASL{Mechanism: Plain, Password: "x"}})
			return err
		},
		"a user without a password": func() error {
			_, err := NewAdmin(Options{Brokers: o.Brokers, SASL: &SASL{Mechanism: Plain, User: "x"}})
			return err
		},
		"a mechanism that nobody has": func() error {
			_, err := NewAdmin(Options{Brokers: o.Brokers, SASL: &SASL{Mechanism: "NTLM", User: "x", Password: "y"}})
			return err
		},
	} {
		if make() == nil {
			t.Errorf("%s was accepted", why)
		}
	}
	p, err := NewProducer(o, ProducerOptions{Topic: "push", Tiers: tiers})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}
