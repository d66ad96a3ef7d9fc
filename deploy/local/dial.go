package local

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// answerTimeout bounds one question to a server that may be starting.
const answerTimeout = 3 * time.Second

// wipeTimeout bounds the emptying of a Redis, which frees everything before it answers.
const wipeTimeout = 2 * time.Minute

// dial connects, with TLS when config is given. The connection has a deadline
// for everything done with it.
func dial(ctx context.Context, within time.Duration, addr string, config *tls.Config) (net.Conn, error) {
	deadline := time.Now().Add(within)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var (
		conn net.Conn
		err  error
	)
	if config == nil {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return conn, nil
}
