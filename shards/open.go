package shards

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options say where Redis is and how to talk to it.
type Options struct {
	Addrs    []string // host:port; one, or some nodes of the cluster
	Cluster  bool     // speak Redis Cluster
	Username string   // ACL user; empty = the default user
	Password string
	TLS      *tls.Config // nil = plain text
	// CurrentTLS, if set, is asked for each connection in place of TLS: certificates are
	// renewed while the client lives.
	CurrentTLS func() *tls.Config

	DialTimeout  time.Duration
	ReadTimeout  time.Duration // of one pipeline or command
	WriteTimeout time.Duration
	PoolSize     int // connections per node for pipelines, and as many for single commands

	// Dialer replaces the dial to a node: in-process servers and fault
	// proxies. nil = TCP, with TLS if set.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

// DefaultOptions has every setting but the place. Time-outs: a batch's
// pipeline answers within some 20 ms, so 2 s means a server that hangs; three
// tries of it stay under the 10 s after which a stall is worth an alert. Pool:
// a pipeline occupies a connection only for its round trip, and at 20 batches
// a second of 3 round trips each a handful is busy at once; 16 leaves room for
// lanes that stall together.
func DefaultOptions() Options {
	return Options{
		DialTimeout:  2 * time.Second,
		ReadTimeout:  2 * time.Second,
		WriteTimeout: 2 * time.Second,
		PoolSize:     16,
	}
}

// Settings that are not options, explicit because the library's defaults have
// changed between versions.
const (
	maxRetries      = 2 // then the stage is repeated by its own back-off
	minRetryBackoff = 10 * time.Millisecond
	maxRetryBackoff = 250 * time.Millisecond
	poolTimeout     = 3 * time.Second
	connMaxIdleTime = 5 * time.Minute
	maxRedirects    = 5
	stateReload     = 10 * time.Second
	keepAlive       = 5 * time.Minute
	respVersion     = 2 // the one that all servers and module versions answer alike in
	// Gains end at about 64 KiB and larger ones cost memory per connection.
	pipelineBuffer = 128 << 10
	commandBuffer  = 16 << 10
)

// Open makes a client of the server or cluster; it connects on first use. The
// caller closes it. It is safe for concurrent use.
//
// Contexts bound every call: a deadline earlier than the time-outs wins.
func Open(o Options) (redis.UniversalClient, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Dialer == nil && o.CurrentTLS != nil {
		plain := &net.Dialer{Timeout: o.DialTimeout, KeepAlive: keepAlive}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&tls.Dialer{NetDialer: plain, Config: o.CurrentTLS()}).DialContext(ctx, network, addr)
		}
	}
	notifications := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.Cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: o.Addrs, Username: o.Username, Password: o.Password, TLSConfig: o.TLS, Dialer: o.Dialer,
			Protocol: respVersion, DisableIdentity: true, ContextTimeoutEnabled: true,
			MaxRedirects: maxRedirects, MaxRetries: maxRetries,
			MinRetryBackoff: minRetryBackoff, MaxRetryBackoff: maxRetryBackoff,
			DialTimeout: o.DialTimeout, DialerRetries: 1, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			PoolSize: o.PoolSize, PoolTimeout: poolTimeout, ConnMaxIdleTime: connMaxIdleTime,
			ReadBufferSize: commandBuffer, WriteBufferSize: commandBuffer, PipelinePoolSize: o.PoolSize,
			PipelineReadBufferSize: pipelineBuffer, PipelineWriteBufferSize: pipelineBuffer,
			ClusterStateReloadInterval: stateReload, MaintNotificationsConfig: notifications,
			DisableRoutingPolicies: true,
		}), nil
	}
	return redis.NewClient(&redis.Options{
		Addr: o.Addrs[0], Username: o.Username, Password: o.Password, TLSConfig: o.TLS, Dialer: o.Dialer,
		Protocol: respVersion, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: maxRetries,
		MinRetryBackoff: minRetryBackoff, MaxRetryBackoff: maxRetryBackoff,
		DialTimeout: o.DialTimeout, DialerRetries: 1, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: poolTimeout, ConnMaxIdleTime: connMaxIdleTime,
		ReadBufferSize: commandBuffer, WriteBufferSize: commandBuffer, PipelinePoolSize: o.PoolSize,
		PipelineReadBufferSize: pipelineBuffer, PipelineWriteBufferSize: pipelineBuffer,
		MaintNotificationsConfig: notifications,
	}), nil
}

func (o *Options) check() error {
	switch {
	case len(o.Addrs) == 0:
		return errors.New("redis: no address")
	case !o.Cluster && len(o.Addrs) > 1:
		return fmt.Errorf("redis: %d addresses, but not a cluster", len(o.Addrs))
	case o.DialTimeout <= 0 || o.ReadTimeout <= 0 || o.WriteTimeout <= 0:
		return errors.New("redis: time-outs must be above 0")
	case o.PoolSize <= 0:
		return errors.New("redis: pool size must be above 0")
	}
	for _, a := range o.Addrs {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("redis: address: %w", err)
		}
	}
	return nil
}
