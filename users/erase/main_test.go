package erase_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/users/userstest"
)

// realRedis is the address of a Redis of this package's own; empty when real servers are not wanted.
var realRedis string

func TestMain(m *testing.M) {
	os.Exit(userstest.RunTests(m, &realRedis, func() error { return goleak.Find() }))
}
