package fleettest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// Roles is the whole of a TestMain whose binary is other processes, too: with the name of a role
// as its first argument it is that one, with the arguments behind it, until it is told to end.
// Without one it runs the tests, and fails if goroutines are left.
func Roles(m *testing.M, roles map[string]func(ctx context.Context, args []string) error) {
	if len(os.Args) > 1 {
		if role := roles[os.Args[1]]; role != nil {
			os.Exit(play(role))
		}
	}
	goleak.VerifyTestMain(m)
}

// play is a role's whole life, and returns its status.
func play(role func(ctx context.Context, args []string) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := role(ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
