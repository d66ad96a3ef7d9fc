package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

// bar is how many of a hundred mutants have to be killed.
const bar = 85

// errBelow is the answer of a run that was not good enough.
var errBelow = errors.New("too few mutants were killed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errBelow):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(2)
	}
}

// command is main with what it needs.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	flags.SetOutput(stderr)
	seed := flags.Uint64("seed", 1, "which mutants are drawn")
	n := flags.Int("n", 60, "how many at most")
	skip := flags.String("skip", "", "leave out tests whose name matches this expression")
	list := flags.String("accepted", filepath.Join("bench", "mutation", "accepted.txt"), "survivors with their reasons")
	asJSON := flags.Bool("json", false, "print the result as JSON; progress goes to standard error")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: mutation [flags] ./package\nin the module's root; exit status 1 if less than 85 % are killed, 2 for errors")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || strings.Contains(flags.Arg(0), "...") || *n < 1 {
		flags.Usage()
		return fmt.Errorf("want one package, and at least one mutant: %q", flags.Args())
	}
	r := &runner{pkg: "./" + filepath.ToSlash(filepath.Clean(flags.Arg(0))), out: stdout}
	if *asJSON {
		r.out = stderr
	}
	if *skip != "" {
		var err error
		if r.skip, err = regexp.Compile(*skip); err != nil {
			return err
		}
	}
	if err := r.prepare(*list); err != nil {
		return err
	}
	defer os.RemoveAll(r.scratch)
	sum, err := r.mutate(ctx, *seed, *n)
	if err != nil {
		return err
	}
	if err := sum.print(stdout, *asJSON); err != nil {
		return err
	}
	if sum.Percent < bar {
		return errBelow
	}
	return nil
}

// prepare finds the folders and reads the list of survivors.
func (r *runner) prepare(list string) error {
	var err error
	if r.root, err = os.Getwd(); err != nil {
		return err
	}
	r.dir = filepath.Join(r.root, filepath.FromSlash(r.pkg))
	file, err := os.Open(list)
	if err != nil {
		return fmt.Errorf("the list of survivors: %w", err)
	}
	defer file.Close()
	if r.accepted, err = readAccepted(file); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	r.scratch, err = os.MkdirTemp("", "mutation")
	return err
}

// print ends a run: survivors first, then the figures.
func (s summary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	for _, o := range s.Survivors {
		why := o.Reason
		if why == "" {
			why = fmt.Sprintf("NO REASON GIVEN; %d tests reach it", o.Reached)
		}
		fmt.Fprintf(w, "\n%s:%d %s (%s)\n- %s\n+ %s\n%s\n", o.File, o.Line, o.Func, o.Kind, o.Before, o.After, why)
	}
	_, err := fmt.Fprintf(w, "\n%s: %d of %d mutants killed, %.0f %% (bar %d), seed %d, drawn from %d\n",
		s.Package, s.Killed, s.Sampled, s.Percent, bar, s.Seed, s.Sites)
	return err
}
