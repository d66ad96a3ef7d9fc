package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/segments/s3"
)

// segmentsPushFlags are the command line of segments push.
type segmentsPushFlags struct {
	sourceFlags
	asNew bool
}

func newSegmentsPushCommand(a *app) *cobra.Command {
	var f segmentsPushFlags
	cmd := &cobra.Command{
		Use:   "push FILE DESTINATION",
		Short: "Publish a segment file, so that workers take it",
		Long: `Check a segment file as workers do, and put it where they look: s3://bucket/key, or a path. Workers take it
with their next poll, without a pause. Nothing is replaced by a file that is broken or not newer than
what is there: workers would refuse it.

--as-new publishes the file with a new version, the present time. That is how an older file is put back in
use: the workers have a greater version, and would refuse its own. FILE itself is not changed.

Credentials of the storage come from a file (--s3-credentials) with aws_access_key_id and
aws_secret_access_key, as Amazon's tools write it.`,
		Example: "  pushctl segments push users.seg s3://audience/users.seg --s3-credentials s3.credentials --s3-region eu-central-1\n" +
			"  pushctl segments push users.seg s3://audience/users.seg --s3-credentials s3.credentials --s3-endpoint https://minio.example.com\n" +
			"  pushctl segments push yesterday.seg /srv/segments/users.seg --as-new",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pushSegments(cmd.Context(), args[0], args[1], &f)
		},
	}
	f.s3Flags(cmd.Flags())
	cmd.Flags().BoolVar(&f.asNew, "as-new", false, "give it a new version, to put an older file back in use")
	return cmd
}

// pushAnswer is the JSON answer of segments push.
type pushAnswer struct {
	Destination string  `json:"destination"`
	Version     uint64  `json:"version"`
	Checksum    string  `json:"checksum"`
	Bytes       int64   `json:"bytes"`
	Before      *uint64 `json:"before"` // the version that was there; null = none
	Changed     bool    `json:"changed"`
}

func (a *app) pushSegments(ctx context.Context, path, destination string, f *segmentsPushFlags) error {
	scheme, _, remote := strings.Cut(destination, "://")
	if remote && scheme != "s3" {
		return usagef("DESTINATION: push writes to s3://bucket/key or a path, not to %s", scheme)
	}
	s, err := a.loadSegments(ctx, path, &sourceFlags{})
	if err != nil {
		return err
	}
	target, err := a.source(destination, &f.sourceFlags)
	if err != nil {
		return err
	}
	before, sum, err := published(ctx, target)
	if err != nil {
		return err
	}
	if f.asNew {
		now, least := time.Now(), uint64(0)
		if before != nil {
			least = *before + 1
		}
		if s, err = s.As(max(segments.VersionAt(now), least), now); err != nil {
			return err
		}
	}
	m := s.Manifest()
	ans := pushAnswer{Destination: destination, Version: s.Version(), Checksum: s.Checksum().String(), Bytes: m.FileBytes(), Before: before}
	if before != nil && sum == s.Checksum() {
		return a.show(explainPush(ans))
	}
	if err := newerThan(s.Version(), before, destination); err != nil {
		return err
	}
	if err := a.publish(ctx, s, target); err != nil {
		return err
	}
	switch _, sum, err = published(ctx, target); {
	case err != nil:
		return fmt.Errorf("%s was written, and cannot be read: %w", destination, err)
	case sum != s.Checksum():
		return fmt.Errorf("%s was written, and has another checksum: did somebody else publish at the same time?", destination)
	}
	ans.Changed = true
	return a.show(explainPush(ans))
}

// newerThan refuses a version that workers which have the one before would refuse.
func newerThan(version uint64, before *uint64, destination string) error {
	switch {
	case before == nil || version > *before:
		return nil
	case version == *before:
		return fmt.Errorf("%s has version %d with other contents: build the file again, or publish it --as-new", destination, version)
	}
	return fmt.Errorf("%s has version %d, and the file is older, version %d: --as-new puts it back in use", destination, *before, version)
}

// published is the version at a destination, nil if there is none, and its
// checksum. What is there and broken counts as none, but something else than segments is
// an error.
func published(ctx context.Context, target segments.Source) (*uint64, segments.Checksum, error) {
	c, err := target.Open(ctx, "")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, s3.ErrNotFound) {
		return nil, segments.Checksum{}, nil
	}
	if err != nil {
		return nil, segments.Checksum{}, err
	}
	defer c.Body.Close()
	m, sum, err := segments.ReadManifest(c.Body)
	switch refused, is := errors.AsType[*segments.RefusedError](err); {
	case err == nil:
		return &m.Version, sum, nil
	case is && refused.Reason != segments.RefusedFormat:
		return nil, segments.Checksum{}, nil
	default:
		return nil, segments.Checksum{}, fmt.Errorf("%s: %w; it is not replaced", target, err)
	}
}

// publish writes a set to its destination.
func (a *app) publish(ctx context.Context, s *segments.Set, target segments.Source) error {
	object, remote := target.(*s3.Object)
	if !remote {
		return segments.WriteFile(target.String(), s)
	}
	// A file of its own, as a storage wants the SHA-256 before the first byte and
	// may have to be sent the contents twice.
	file, err := os.CreateTemp("", "pushctl-*.seg")
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	h := sha256.New()
	n, err := s.WriteTo(io.MultiWriter(file, h))
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	defer show.end()
	return object.Put(ctx, &sendProgress{readProgress{r: file, of: n, show: show}, file}, n, hex.EncodeToString(h.Sum(nil)))
}

// sendProgress shows how much of a file has been read to send it.
type sendProgress struct {
	readProgress
	file io.Seeker
}

func (p *sendProgress) Seek(offset int64, whence int) (int64, error) {
	at, err := p.file.Seek(offset, whence)
	p.read, p.told = at, at
	return at, err
}

func explainPush(v pushAnswer) terminal.Answer {
	ans := terminal.Answer{Value: v}
	switch {
	case !v.Changed:
		ans.Before = fmt.Sprintf("%s has version %d already, with the same contents", v.Destination, v.Version)
	case v.Before == nil:
		ans.Before = fmt.Sprintf("%s: version %d published, %d bytes", v.Destination, v.Version, v.Bytes)
	default:
		ans.Before = fmt.Sprintf("%s: version %d published in place of version %d, %d bytes", v.Destination, v.Version, *v.Before, v.Bytes)
	}
	return ans
}
