//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// RedisPair is a Redis and its replica, and the one address that clients know
// of both: Dial. Part and FailOver are called once, in that order.
type RedisPair struct {
	primary, replica *Server
	serving          atomic.Pointer[Server]
}

// StartRedisPair starts both and returns when the replica follows. ctx bounds
// the start. What clients write is asynchronous for the replica, as it is in
// every Redis.
func StartRedisPair(ctx context.Context) (*RedisPair, error) {
	p := &RedisPair{}
	for _, s := range []**Server{&p.primary, &p.replica} {
		server, err := StartRedis(ctx, RedisOptions{})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting a pair of redis: %w", err), p.Close())
		}
		*s = server
	}
	p.serving.Store(p.primary)
	host, port, err := net.SplitHostPort(p.primary.Addr())
	if err == nil { // it would wait 5 s for other replicas
		_, err = redisDo(ctx, p.primary.Addr(), nil, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
	}
	if err == nil {
		_, err = redisDo(ctx, p.replica.Addr(), nil, "REPLICAOF", host, port)
	}
	if err == nil {
		err = p.level(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a pair of redis: %w", err), p.Close())
	}
	return p, nil
}

// pairKey is what level writes. Fleets have no such key.
const pairKey = "local:level"

// level waits until the replica has all that the primary had: what is written
// now comes last.
func (p *RedisPair) level(ctx context.Context) error {
	mark := time.Now().String()
	if _, err := redisDo(ctx, p.primary.Addr(), nil, "SET", pairKey, mark); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		got, err := redisDo(ctx, p.replica.Addr(), nil, "GET", pairKey)
		if err == nil && got == mark {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the replica does not follow: %w; last answer: %w", context.Cause(ctx), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Dial connects to whoever serves now, whatever address is asked for.
func (p *RedisPair) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, p.serving.Load().Addr())
}

// Part ends the replication: the replica has all that was answered before, and
// nothing of what is written from now on. Clients notice nothing.
func (p *RedisPair) Part(ctx context.Context) error {
	err := p.level(ctx)
	if err == nil {
		_, err = redisDo(ctx, p.replica.Addr(), nil, "REPLICAOF", "NO", "ONE")
	}
	if err != nil {
		return fmt.Errorf("parting a pair of redis: %w", err)
	}
	return nil
}

// FailOver kills the primary and lets the replica serve.
func (p *RedisPair) FailOver() error {
	p.serving.Store(p.replica)
	return p.primary.Kill()
}

// Close closes both. Closing twice is fine.
func (p *RedisPair) Close() error {
	var failures error
	for _, s := range []*Server{p.primary, p.replica} {
		if s != nil {
			failures = errors.Join(failures, s.Close())
		}
	}
	return failures
}
