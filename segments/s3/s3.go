// Package s3 is an object in S3-compatible storage as a source of segments:
// Amazon S3, MinIO, Ceph, Google's and others' that speak its protocol with
// signatures of version 4.
package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/pushfleet/pushfleet/segments"
)

// Options name an object and how it is reached.
type Options struct {
	Location string // s3://bucket/key
	// Endpoint is the storage's URL, without a path; empty = Amazon's in Region.
	// Signatures hide the secret key, so http is possible, but not the
	// contents nor a session token.
	Endpoint string
	Region   string // empty = us-east-1, which most other storages take
	// Credentials, if set, gives those of each request, read anew so that they can
	// be rotated. Without it requests are not signed.
	Credentials func() (Credentials, error)
	TLS         *tls.Config // nil = the system's certificate authorities
}

// Object is an object as a segments.Source. Safe for concurrent use.
type Object struct {
	bucket, key string
	core        *minio.Core
	transport   *http.Transport
}

// tries is how often a request is sent before it has failed: a Watcher polls
// again anyway.
const tries = 3

// Open checks the options; it connects to nothing. Close ends idle connections.
func Open(o Options) (*Object, error) {
	bucket, key, err := parseLocation(o.Location)
	if err != nil {
		return nil, err
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Endpoint == "" {
		o.Endpoint = "https://s3." + o.Region + ".amazonaws.com"
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("the endpoint is not an http or https URL without path, user and password, such as https://s3.example.com")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.TLS
	transport.ResponseHeaderTimeout = time.Minute
	transport.DisableCompression = true // size and ETag are those of the file itself
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds: credentials.New(provider(o.Credentials)), Secure: u.Scheme == "https", Region: o.Region, Transport: transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	return &Object{bucket: bucket, key: key, core: core, transport: transport}, nil
}

func parseLocation(s string) (bucket, key string, err error) {
	rest, ok := strings.CutPrefix(s, "s3://")
	bucket, key, found := strings.Cut(rest, "/")
	if !ok || !found || bucket == "" || key == "" || strings.ContainsAny(s, "?#@") {
		return "", "", errors.New("not of the form s3://bucket/key")
	}
	return bucket, key, nil
}

// Close closes idle connections.
func (o *Object) Close() { o.transport.CloseIdleConnections() }

// String implements segments.Source.
func (o *Object) String() string { return "s3://" + o.bucket + "/" + o.key }

// Open implements segments.Source. Tags are ETags.
func (o *Object) Open(ctx context.Context, tag string) (*segments.Contents, error) {
	var opts minio.GetObjectOptions
	if tag != "" {
		opts.Set("If-None-Match", `"`+tag+`"`)
	}
	body, info, _, err := o.core.GetObject(ctx, o.bucket, o.key, opts)
	if err != nil {
		return nil, o.failed(err, tag)
	}
	return &segments.Contents{Body: body, Size: info.Size, Tag: info.ETag}, nil
}

// Put replaces the object with size bytes of r, whose SHA-256 in hex is sum. It
// is there at once when Put has returned, or not at all; the largest object is
// 5 GiB.
func (o *Object) Put(ctx context.Context, r io.ReadSeeker, size int64, sum string) error {
	_, err := o.core.PutObject(ctx, o.bucket, o.key, onlyReadSeeker{r}, size, "", sum, minio.PutObjectOptions{
		ContentType:          "application/octet-stream",
		DisableContentSha256: true, // sum is signed instead of each chunk
	})
	if err != nil {
		return o.failed(err, "")
	}
	return nil
}

// onlyReadSeeker hides Close: the library would close what it has sent.
type onlyReadSeeker struct{ io.ReadSeeker }

// ErrNotFound is the error for a bucket or object that is not there.
var ErrNotFound = errors.New("not found")

// failed makes an error of the library one of a Source.
func (o *Object) failed(err error, tag string) error {
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	switch {
	case ok && answer.StatusCode == http.StatusNotModified && tag != "":
		return segments.ErrUnchanged
	case ok && answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w (%s)", o, ErrNotFound, answer.Code)
	case ok && answer.StatusCode != 0:
		return fmt.Errorf("%s: the storage answered %d %s: %s", o, answer.StatusCode, answer.Code, answer.Message)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("%s: %w", o, err)
}
