package users_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/shards"
)

// realRedis is the address of a Redis of this package's own: its tests flush
// it, which nobody may do to the one that all packages share. Empty when real
// servers are not wanted.
var realRedis string

func TestMain(m *testing.M) {
	status, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "users:", err)
		status = 1
	}
	os.Exit(status)
}

func runTests(m *testing.M) (status int, err error) {
	shards.LogTo(quiet) // of connections to servers that are away on purpose
	if os.Getenv(local.EnvServers) == "" {
		return m.Run(), goleak.Find()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	server, err := local.StartRedis(ctx, local.RedisOptions{})
	if err != nil {
		return 1, err
	}
	realRedis = server.Addr()
	status = m.Run()
	return status, errors.Join(server.Close(), goleak.Find())
}
