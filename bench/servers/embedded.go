//go:build linux

package servers

import (
	"context"

	"github.com/pushfleet/pushfleet/deploy/embedded"
)

// Embedded is a Kafka or a Redis of deploy/embedded in a process of its own.
type Embedded struct {
	*process
	Address string // host:port
}

// StartKafka runs program, whose arguments end where Serve's begin, as an embedded Kafka without topics. Socket and log
// are in dir, which must exist.
func StartKafka(ctx context.Context, program []string, dir string) (*Embedded, error) {
	return startEmbedded(ctx, program, dir, kafka)
}

// StartRedis is the same with an embedded Redis.
func StartRedis(ctx context.Context, program []string, dir string) (*Embedded, error) {
	return startEmbedded(ctx, program, dir, redis)
}

func startEmbedded(ctx context.Context, program []string, dir, name string) (*Embedded, error) {
	p, err := start(ctx, program, dir, name)
	if err != nil {
		return nil, err
	}
	e := &Embedded{process: p}
	if err := p.call(ctx, "Server.Address", true, &e.Address); err != nil {
		p.Close()
		return nil, err
	}
	return e, nil
}

// address is the other side of Embedded.
type address string

// Address is where the server listens.
func (a address) Address(_ bool, at *string) error {
	*at = string(a)
	return nil
}

func serveKafka(ctx context.Context, socket string) error {
	k, err := embedded.StartKafka()
	if err != nil {
		return err
	}
	defer k.Close()
	return serve(ctx, socket, "Server", address(k.Addrs()[0]))
}

func serveRedis(ctx context.Context, socket string) error {
	r, err := embedded.StartRedis()
	if err != nil {
		return err
	}
	defer r.Close()
	return serve(ctx, socket, "Server", address(r.Addr()))
}
