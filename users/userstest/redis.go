package userstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/shards"
)

// RunTests runs the tests of a package and returns its exit status. When real servers are
// wanted it starts a Redis first and writes its address to addr: worlds flush it, which nobody may do to
// the one that all packages share. leaks says at the end which goroutines are left.
func RunTests(m *testing.M, addr *string, leaks func() error) (status int) {
	shards.LogTo(slog.New(slog.DiscardHandler)) // of connections to servers that are away on purpose
	status, err := runTests(m, addr)
	if err = errors.Join(err, leaks()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	return status
}

func runTests(m *testing.M, addr *string) (status int, err error) {
	if os.Getenv(local.EnvServers) == "" {
		return m.Run(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	server, err := local.StartRedis(ctx, local.RedisOptions{})
	if err != nil {
		return 1, fmt.Errorf("starting a Redis: %w", err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	*addr = server.Addr()
	return m.Run(), nil
}
