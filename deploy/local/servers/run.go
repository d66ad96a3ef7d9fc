//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
)

// endTimeout is how long an interrupted command may take to end before it is
// killed.
const endTimeout = 10 * time.Second

// run starts the servers, runs the command beside them, and returns its exit
// status.
func run(ctx context.Context, dir string, args []string, stdout, stderr io.Writer) (status int, err error) {
	// A mistyped command should not cost the start of three servers.
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, fmt.Errorf("run: %w", err)
	}
	set, err := start(ctx, dir, stderr)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	return runBeside(ctx, set, path, args, stdout, stderr)
}

// runBeside runs the command with the addresses of running servers.
func runBeside(ctx context.Context, set *local.Set, path string, args []string, stdout, stderr io.Writer) (int, error) {
	env, err := set.Addresses().Env()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// The command is not in the terminal's foreground group: reading from the
	// terminal would stop it. A pipe or a file is passed on.
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
		cmd.Stdin = os.Stdin
	}
	child, err := local.StartProcess(cmd)
	if err != nil {
		return 0, err
	}
	if err := await(ctx, child, set); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return exitInterrupted, nil
	}
	return exitStatus(child.Err()), nil
}

// await waits until the command has ended and leaves nothing of it behind. It
// hands on an interrupt, and ends a command whose server has died under it:
// its tests would only run into their time-outs.
func await(ctx context.Context, child *local.Process, set *local.Set) (err error) {
	select {
	case <-child.Done():
	case <-ctx.Done():
		err = end(child)
	case <-set.Kafka.Done():
		err = errors.Join(errors.New("kafka has ended, and with it the command"+set.Kafka.Tail()), end(child))
	case <-set.Redis.Done():
		err = errors.Join(errors.New("redis has ended, and with it the command"+set.Redis.Tail()), end(child))
	case <-set.Cassandra.Done():
		err = errors.Join(errors.New("cassandra has ended, and with it the command"+set.Cassandra.Tail()), end(child))
	}
	// What the command has left running in its group goes too.
	return errors.Join(err, child.Signal(syscall.SIGKILL))
}

// end asks the command to end, and kills it when it takes too long.
func end(child *local.Process) error {
	if err := child.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-child.Done():
		return nil
	case <-time.After(endTimeout):
	}
	if err := child.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-child.Done()
	return nil
}

// exitStatus is the status a shell would give for the end of a command.
func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return exitFailed
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// up starts the servers, prints where they are and waits for an interrupt.
func up(ctx context.Context, dir, output string, stdout, stderr io.Writer) (status int, err error) {
	set, err := start(ctx, dir, stderr)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	if err := printAddresses(set.Addresses(), output, stdout); err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return exitInterrupted, nil
	case <-set.Kafka.Done():
		return 0, errors.New("kafka has ended" + set.Kafka.Tail())
	case <-set.Redis.Done():
		return 0, errors.New("redis has ended" + set.Redis.Tail())
	case <-set.Cassandra.Done():
		return 0, errors.New("cassandra has ended" + set.Cassandra.Tail())
	}
}

func printAddresses(addresses local.Addresses, output string, stdout io.Writer) error {
	if output == "json" {
		return json.NewEncoder(stdout).Encode(addresses)
	}
	env, err := addresses.Env()
	if err != nil {
		return err
	}
	for _, assignment := range env {
		if _, err := fmt.Fprintln(stdout, "export", assignment); err != nil {
			return err
		}
	}
	return nil
}

// start starts the servers and says on stderr how long that took.
func start(ctx context.Context, dir string, stderr io.Writer) (*local.Set, error) {
	began := time.Now()
	set, err := local.StartSet(ctx, local.SetOptions{Dir: dir})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stderr, "servers: kafka %s, redis %s, cassandra %s up in %.1f s\n",
		set.Kafka.Addr(), set.Redis.Addr(), set.Cassandra.Addr(), time.Since(began).Seconds())
	return set, nil
}
