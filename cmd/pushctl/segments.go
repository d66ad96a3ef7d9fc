package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/wiring"
)

func newSegmentsCommand(a *app) *cobra.Command {
	return newGroup("segments", "Segments of users: build, inspect, compare, publish, look up, enumerate",
		newSegmentsBuildCommand(a), newSegmentsInspectCommand(a), newSegmentsListCommand(a), newSegmentsDiffCommand(a),
		newSegmentsPushCommand(a), newSegmentsLookupCommand(a), newSegmentsEnumerateCommand(a))
}

// sourceHelp says in the help of a command what a SOURCE is.
const sourceHelp = `
SOURCE is a file, an http or https URL, or s3://bucket/key. Credentials come from files:
--s3-credentials names one as Amazon's tools write it (aws_access_key_id and aws_secret_access_key),
--token-file one with a bearer token. Without them requests are not signed.`

// sourceFlags are how sources are reached.
type sourceFlags struct {
	endpoint, region, credentials string
	token, ca                     string
}

func (f *sourceFlags) flags(flags *pflag.FlagSet) {
	f.s3Flags(flags)
	flags.StringVar(&f.token, "token-file", "", "`file` with the bearer token of an https source")
}

// s3Flags are those of S3-compatible storage alone.
func (f *sourceFlags) s3Flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.endpoint, "s3-endpoint", "", "`URL` of S3-compatible storage; default: Amazon's of the region")
	flags.StringVar(&f.region, "s3-region", "us-east-1", "`region` of the bucket")
	flags.StringVar(&f.credentials, "s3-credentials", "", "`file` with the keys of the storage")
	flags.StringVar(&f.ca, "ca-file", "", "PEM `file` with the certificate authorities of the server; default: the system's")
}

// flagOf are the flags that stand for the keys of a configuration.
var flagOf = map[string]string{"source": "SOURCE", "ca_file": "--ca-file", "token_file": "--token-file", "s3_credentials_file": "--s3-credentials"}

// source is the source that an argument names.
func (a *app) source(name string, f *sourceFlags) (segments.Source, error) {
	source, done, err := wiring.Segments(&configs.Segments{Source: name, TokenFile: f.token, CAFile: f.ca,
		S3Endpoint: f.endpoint, S3Region: f.region, S3CredentialsFile: f.credentials})
	if wrong, is := errors.AsType[*wiring.SettingError](err); is {
		return nil, usagef("%s: %w", flagOf[wrong.Key], wrong.Err)
	}
	if err != nil {
		return nil, err
	}
	a.onClose(done)
	return source, nil
}

// openSource opens the contents of the source that an argument names. A file that is not there
// is a mistake in the command line.
func (a *app) openSource(ctx context.Context, name string, f *sourceFlags) (*segments.Contents, error) {
	src, err := a.source(name, f)
	if err != nil {
		return nil, err
	}
	c, err := src.Open(ctx, "")
	if _, local := src.(segments.File); local && errors.Is(err, fs.ErrNotExist) {
		return nil, usageError{err}
	}
	return c, err
}

// loadSegments loads and checks what a source contains.
func (a *app) loadSegments(ctx context.Context, name string, f *sourceFlags) (*segments.Set, error) {
	c, err := a.openSource(ctx, name, f)
	if err != nil {
		return nil, err
	}
	defer c.Body.Close()
	show := newProgress(a.stderr)
	defer show.end()
	s, err := segments.Read(&readProgress{r: c.Body, of: c.Size, show: show}, segmentsLimit)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// segmentsLimit is the largest file that pushctl loads, in bytes.
const segmentsLimit = 16 << 30

// readProgress shows how much of a source has been read.
type readProgress struct {
	r        io.Reader
	read, of int64
	told     int64
	show     *progress
}

func (p *readProgress) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if p.read += int64(n); p.read-p.told >= 16<<20 {
		p.told = p.read
		if p.of > 0 {
			p.show.line("%d of %d MB read", p.read/1e6, p.of/1e6)
		} else {
			p.show.line("%d MB read", p.read/1e6)
		}
	}
	return n, err
}

// segmentName is the name of a segment on the command line: "group/segment".
func segmentName(s string) (group, segment string, err error) {
	group, segment, found := strings.Cut(s, "/")
	if !found || group == "" || segment == "" || strings.Contains(segment, "/") {
		return "", "", usagef("%q: want GROUP/SEGMENT, such as lifecycle/new", s)
	}
	return group, segment, nil
}
