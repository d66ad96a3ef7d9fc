//go:build unix

// Command servers starts a real Kafka, Redis and Cassandra on this machine
// without containers: for the length of a command (run) or until Ctrl-C (up).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/pushfleet/pushfleet/deploy/local"
)

const usage = `Real Kafka 4.3, Redis 7 (with the Bloom module) and Cassandra 5 for tests,
on free ports of 127.0.0.1, without containers.

usage:
  servers run [--dir DIR] -- COMMAND [ARGUMENTS]
      Start the servers, run COMMAND with their addresses in its environment,
      stop them whatever happens, and exit with COMMAND's status.
  servers up [--dir DIR] [-o text|json]
      Start the servers, print their addresses, and run until Ctrl-C.
  servers archive
      Start Kafka once to keep its classes in the cache as Java has them in memory,
      unless they are there: every later start takes half the CPU.

options:
  --dir DIR      keep data and logs in DIR (default: temporary, removed at the end)
  -o text|json   how up prints the addresses: lines for a shell, or one JSON object

environment of COMMAND:
  PUSHFLEET_TEST_SERVERS=1        real servers may be used
  PUSHFLEET_TEST_KAFKA, PUSHFLEET_TEST_REDIS, PUSHFLEET_TEST_CASSANDRA
                                  host:port of each
  PUSHFLEET_CACHE                 where deploy/local/fetch.sh has put the servers

examples:
  go run ./deploy/local/servers run -- go test ./status
  go run ./deploy/local/servers up -o json

Run deploy/local/fetch.sh first. Memory: about 2.5 GB for all three.
Exit status: COMMAND's; 1 if a server failed; 2 wrong usage; 130 interrupted.
`

// Exit statuses of our own; run passes on those of its command.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command does what args say and returns the exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	flags := flag.NewFlagSet("servers "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	dir := flags.String("dir", "", "")
	var do func() (int, error)
	switch args[0] {
	case "run":
		do = func() (int, error) {
			if flags.NArg() == 0 {
				return 0, wrongUsage("run: no command; write it behind --")
			}
			return run(ctx, *dir, flags.Args(), stdout, stderr)
		}
	case "up":
		output := flags.String("o", "text", "")
		do = func() (int, error) {
			if flags.NArg() > 0 {
				return 0, wrongUsage(fmt.Sprintf("up: unexpected argument %q", flags.Arg(0)))
			}
			if *output != "text" && *output != "json" {
				return 0, wrongUsage(fmt.Sprintf("up: -o %q is neither text nor json", *output))
			}
			return up(ctx, *dir, *output, stdout, stderr)
		}
	case "archive":
		do = func() (int, error) {
			if flags.NArg() > 0 {
				return 0, wrongUsage(fmt.Sprintf("archive: unexpected argument %q", flags.Arg(0)))
			}
			return 0, local.ArchiveKafka(ctx)
		}
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	default:
		fmt.Fprintf(stderr, "servers: unknown command %q; see servers --help\n", args[0])
		return exitUsage
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	status, err := do()
	if err == nil {
		return status
	}
	fmt.Fprintln(stderr, "servers:", err)
	var wrong wrongUsage
	switch {
	case errors.As(err, &wrong):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	default:
		return exitFailed
	}
}

// wrongUsage is an error in how the command was called.
type wrongUsage string

func (w wrongUsage) Error() string { return string(w) }
