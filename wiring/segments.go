package wiring

import (
	"fmt"
	"strings"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/segments/s3"
)

// Segments opens where the file of segments is; a source of nil says that there is
// none. The caller calls done at the end. Secrets are read at each request, so that
// they can be rotated. The error names the key at fault.
func Segments(c *configs.Config) (source segments.Source, done func(), err error) {
	s := &c.Segments
	scheme, _, remote := strings.Cut(s.Source, "://")
	switch {
	case s.Source == "":
		return nil, func() {}, nil
	case !remote:
		return segments.File(s.Source), func() {}, nil
	case scheme == "s3":
		return objectOf(s)
	}
	return pageOf(s)
}

func objectOf(s *configs.Segments) (segments.Source, func(), error) {
	tls, err := s.TLSConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("segments.ca_file: %w", err)
	}
	o := s3.Options{Location: s.Source, Endpoint: s.S3Endpoint, Region: s.S3Region, TLS: tls}
	if s.S3CredentialsFile != "" {
		o.Credentials = func() (s3.Credentials, error) {
			text, err := s.S3Credentials()
			if err != nil {
				return s3.Credentials{}, err
			}
			keys, err := s3.ParseCredentials(text.Reveal())
			if err != nil {
				return s3.Credentials{}, fmt.Errorf("segments.s3_credentials_file: %w", err)
			}
			return keys, nil
		}
	}
	object, err := s3.Open(o)
	if err != nil {
		return nil, nil, fmt.Errorf("segments.source: %w", err)
	}
	return object, object.Close, nil
}

func pageOf(s *configs.Segments) (segments.Source, func(), error) {
	tls, err := s.TLSConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("segments.ca_file: %w", err)
	}
	o := segments.HTTPOptions{URL: s.Source, TLS: tls}
	if s.TokenFile != "" {
		o.Token = func() (string, error) {
			token, err := s.Token()
			return token.Reveal(), err
		}
	}
	page, err := segments.NewHTTP(o)
	if err != nil {
		return nil, nil, fmt.Errorf("segments.source: %w", err)
	}
	return page, page.Close, nil
}
