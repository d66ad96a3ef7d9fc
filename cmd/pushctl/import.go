package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

// importFlags are the command line of devices import.
type importFlags struct {
	format       string
	onError      onError
	registeredAt string
	dryRun       bool
}

func newImportCommand(a *app) *cobra.Command {
	f := importFlags{onError: stopAtError}
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Register the devices of a CSV file or of JSON lines",
		Long: `Register the devices of a file, or of standard input ("-"), of any size. These are the columns of a CSV
file, whose first line names them in any order, or the fields of JSON lines:

  user_id        1 to 128 bytes
  platform       ` + push.PlatformNames(" or ") + `
  token          ` + tokenWords() + `
  app            as in the messages
  environment    ` + environmentWords() + `
  locale         such as en-GB; optional
  registered_at  RFC 3339: when the app got the token. The latest registration of a token owns it, and a
                 provider's report that a token is dead counts only if it is not older. The time of the
                 import would be wrong, so lines without this field need --registered-at
  app_version    of the app on the device, at most 64 bytes; optional

A line that breaks a rule is reported with its number and the rule, never with its content, and makes the
exit status 1. --on-error stop (default) ends there; all lines before it are registered. --on-error skip
continues. An import can be repeated: the same device is the same registration.`,
		Example: "  pushctl devices import --dry-run --on-error skip devices.csv\n  pushctl devices import devices.csv\n  zcat devices.jsonl.gz | pushctl devices import --format jsonl -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importDevices(cmd.Context(), args[0], f)
		},
	}
	cmd.Flags().StringVar(&f.format, "format", "", "csv or jsonl; default: by the file's extension")
	cmd.Flags().Var(&f.onError, "on-error", "stop at the first bad line, or skip bad lines")
	cmd.Flags().StringVar(&f.registeredAt, "registered-at", "", "`time` (RFC 3339) for lines without registered_at")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "check every line, register nothing")
	return cmd
}

// importAnswer is the JSON answer of `pushctl devices import`.
type importAnswer struct {
	Read       int            `json:"read"`
	Registered int            `json:"registered"` // with --dry-run: that would be registered
	Refused    int            `json:"refused"`
	Rules      map[string]int `json:"rules"` // how often each was broken
	StoppedAt  int            `json:"stopped_at_line,omitempty"`
	DryRun     bool           `json:"dry_run,omitempty"`
}

func (a *app) importDevices(ctx context.Context, path string, f importFlags) error {
	form, err := fileFormat(f.format, path)
	if err != nil {
		return err
	}
	im := &deviceImport{flags: f, refused: newRefusals(a.stderr), show: newProgress(a.stderr), began: time.Now()}
	if f.registeredAt != "" {
		if im.at, err = time.Parse(time.RFC3339, f.registeredAt); err != nil {
			return usagef("--registered-at: not RFC 3339, such as 2026-11-21T10:00:00Z")
		}
	}
	if form == jsonFile {
		im.parse = parseJSON
	}
	in, err := a.open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if !f.dryRun {
		log, err := a.usersLog(ctx)
		if err != nil {
			return err
		}
		im.client = users.NewClient(log)
	}
	err = im.run(ctx, in)
	im.show.end()
	switch {
	case err == nil:
	case f.dryRun:
		return fmt.Errorf("%s: %w", path, err)
	default:
		return partlyf(fmt.Errorf("%s: %w", path, err), "at least %d devices were registered; the command can be repeated", im.Registered)
	}
	im.Refused, im.Rules, im.DryRun = im.refused.count, im.refused.rules, f.dryRun
	if err := a.show(im.explain()); err != nil {
		return err
	}
	if im.Refused > 0 {
		return errDifference
	}
	return nil
}

// importBatch is how many devices are registered with one append.
const importBatch = 1000

// deviceImport is one run of an import.
type deviceImport struct {
	importAnswer
	flags   importFlags
	client  *users.Client // nil with --dry-run
	parse   deviceParser  // nil until the header of a CSV file has been read
	at      time.Time     // registered_at of lines without one
	refused *refusals
	show    *progress
	began   time.Time
	batch   []users.Registration
}

func (im *deviceImport) run(ctx context.Context, in io.Reader) error {
	var failed error
	for l := range readLines(in, &failed) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if im.parse == nil {
			parse, err := parseCSV(l.text)
			if err != nil {
				return usagef("line %d: %w", l.number, err)
			}
			im.parse = parse
			continue
		}
		im.Read++
		if err := im.take(l); err != nil {
			im.show.end()
			im.refused.add(l.number, err)
			if im.flags.onError == stopAtError {
				im.StoppedAt = l.number
				break
			}
			continue
		}
		if len(im.batch) == importBatch {
			if err := im.flush(ctx); err != nil {
				return err
			}
		}
	}
	if failed != nil {
		return fmt.Errorf("reading: %w", failed)
	}
	if im.parse == nil {
		return usagef("line 1: missing header of a CSV file")
	}
	return im.flush(ctx)
}

// take adds a line's device to the batch, or returns the rule that it breaks.
func (im *deviceImport) take(l line) error {
	if l.err != nil {
		return l.err
	}
	var d deviceLine
	if err := im.parse(l.text, &d); err != nil {
		return err
	}
	r, err := registration(&d, im.at)
	if err != nil {
		return err
	}
	im.batch = append(im.batch, r)
	return nil
}

func (im *deviceImport) flush(ctx context.Context) error {
	if len(im.batch) == 0 {
		return nil
	}
	if im.client != nil {
		if _, err := im.client.RegisterDevices(ctx, im.batch); err != nil {
			return err
		}
	}
	im.Registered += len(im.batch)
	im.batch = im.batch[:0]
	im.show.line("%d devices, %d lines refused, %.0f/s", im.Registered, im.refused.count, float64(im.Registered)/time.Since(im.began).Seconds())
	return nil
}

func (im *deviceImport) explain() terminal.Answer {
	verb := "registered"
	if im.DryRun {
		verb = "would be registered"
	}
	ans := terminal.Answer{Value: im.importAnswer, Table: im.refused.table()}
	ans.Before = fmt.Sprintf("%d devices %s, %d lines refused", im.Registered, verb, im.Refused)
	if im.StoppedAt > 0 {
		ans.After = fmt.Sprintf("stopped at line %d; use --on-error skip to continue", im.StoppedAt)
	}
	return ans
}
