//go:build linux

// Package servers runs what a worker is measured with as processes of their own, so that the operating system's account of
// each is that of one thing: the simulator, and in place of real servers the embedded Kafka and Redis, and a worker that
// keeps its status rows in its own memory, as there is no embedded Cassandra.
//
// Both sides are here: Serve is the whole of such a process, the Start functions run a program that ends in Serve. They
// talk over Unix sockets, by net/rpc.
package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"sync"
)

// What Serve can be: the first of its arguments.
const (
	simulator = "simulator" // SOCKET
	kafka     = "kafka"     // SOCKET
	redis     = "redis"     // SOCKET
	run       = "run"       // --config FILE: a worker
	registry  = "registry"  // --config FILE
)

// Serve is the whole of a process, which ends with ctx. What it tells goes to log.
func Serve(ctx context.Context, args []string, log io.Writer) error {
	if len(args) < 2 {
		return errors.New("want what to be, and where to listen or --config FILE")
	}
	switch name, at := args[0], args[len(args)-1]; name {
	case simulator:
		return serveSimulator(ctx, at)
	case kafka:
		return serveKafka(ctx, at)
	case redis:
		return serveRedis(ctx, at)
	case run:
		return runWorker(ctx, at, log)
	case registry:
		return runRegistry(ctx, at, log)
	default:
		return fmt.Errorf("there is no %q", name)
	}
}

// serve answers calls to a receiver on a socket until ctx ends.
func serve(ctx context.Context, socket, name string, receiver any) error {
	server := rpc.NewServer()
	if err := server.RegisterName(name, receiver); err != nil {
		return fmt.Errorf("serving %s: %w", name, err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("serving %s: %w", name, err)
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	// It ends the connections too: nobody waits for an answer any more.
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serving %s: %w", name, err)
		}
		calls.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			server.ServeConn(conn)
		})
	}
}
