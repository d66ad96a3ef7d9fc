package kafka

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The client's errors and warnings keep their level in our log; its info, which
// tells each step of a rebalance, is our debug, and asked for only where
// somebody reads it.
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
				t.Errorf("read from %v: asks for %v, want %v", tt.reads, got, tt.asks)
			}
			l.Log(from, "joined", "group", "g")
			line := b.String()
			if to == "" && line != "" || to != "" && (!strings.Contains(line, "level="+to) || !strings.Contains(line, `"kafka client: joined" group=g`)) {
				t.Errorf("%v, read from %v: %q, want level %q", from, tt.reads, line, to)
			}
		}
	}
}

// Without a broker to begin with nothing is made, and nothing breaks.
func TestNothingIsMadeWithoutBrokers(t *testing.T) {
	for what, make := range map[string]func(Options) error{
		"dlq":      func(o Options) error { _, err := NewDLQ(o, "push"); return err },
		"follower": func(o Options) error { _, err := NewFollower(o, "push", nil); return err },
		"consumer": func(o Options) error { _, err := NewConsumer(o, "push", "g"); return err },
		"writer":   func(o Options) error { _, err := NewWriter(o, WriterOptions{Topic: "push"}); return err },
		"audit":    func(o Options) error { _, err := NewAudit(o, "push"); return err },
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
