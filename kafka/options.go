package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Options say how to reach the cluster. All clients of a process use the same.
type Options struct {
	Brokers []string    // host:port, at least one
	TLS     *tls.Config // nil = plain text
	// CurrentTLS, if set, is asked for each connection in place of TLS: certificates are
	// renewed while clients live.
	CurrentTLS func() *tls.Config
	SASL       *SASL  // nil = no authentication
	ClientID   string // as brokers log it; empty = "pushfleet"
	Log        *slog.Logger
	// Dial replaces the network, TLS included; nil = TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// The SASL mechanisms.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// SASL is a user and its password. Printing it never shows the password.
type SASL struct {
	Mechanism string // Plain, ScramSHA256 or ScramSHA512
	User      string
	Password  string
}

// String leaves the password out.
func (s SASL) String() string { return s.Mechanism + " user " + s.User }

// GoString leaves the password out.
func (s SASL) GoString() string { return "kafka.SASL{" + s.String() + "}" }

// LogValue leaves the password out.
func (s SASL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText leaves the password out.
func (s SASL) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s SASL) mechanism() (sasl.Mechanism, error) {
	if s.User == "" || s.Password == "" {
		return nil, errors.New("SASL needs a user and a password")
	}
	switch s.Mechanism {
	case Plain:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	case ScramSHA256:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism(), nil
	case ScramSHA512:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("SASL mechanism %q is none of %s, %s, %s", s.Mechanism, Plain, ScramSHA256, ScramSHA512)
}

// dialFunc opens a connection to a broker, as net.Dialer's DialContext does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialTimeout is how long opening one connection may take.
const dialTimeout = 10 * time.Second

// dialer returns the function that opens connections, TLS included.
func (o Options) dialer() dialFunc {
	plain := &net.Dialer{Timeout: dialTimeout}
	switch {
	case o.Dial != nil:
		return o.Dial
	case o.CurrentTLS != nil:
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{NetDialer: plain, Config: o.CurrentTLS()}).DialContext(ctx, network, address)
		}
	case o.TLS != nil:
		return (&tls.Dialer{NetDialer: plain, Config: o.TLS.Clone()}).DialContext
	}
	return plain.DialContext
}

// newClient returns a client with the options that all clients share. It does not
// connect.
func (o Options) newClient(more ...kgo.Opt) (*kgo.Client, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("no brokers given")
	}
	id := o.ClientID
	if id == "" {
		id = "pushfleet"
	}
	opts := []kgo.Opt{kgo.SeedBrokers(o.Brokers...), kgo.ClientID(id), kgo.Dialer(o.dialer()),
		// The fleet has metrics of its own. A client that pushes them to a broker waits a second
		// at its end for one that is away.
		kgo.DisableClientMetrics()}
	if o.Log != nil {
		opts = append(opts, kgo.WithLogger(clientLog{o.Log}))
	}
	if o.SASL != nil {
		m, err := o.SASL.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	return kgo.NewClient(append(opts, more...)...)
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// clientLog passes the client's log on to ours. The client logs topics, offsets and
// brokers, never a record's content. Its info level is our debug level, because it logs
// every step of every rebalance.
type clientLog struct{ log *slog.Logger }

// Level returns the lowest level that our log shows.
func (l clientLog) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelError
	case kgo.LogLevelWarn:
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}
