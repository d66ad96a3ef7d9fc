package wiring

import (
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/segments/s3"
)

// SettingError says which key of the section segments is at fault.
type SettingError struct {
	Key string // such as token_file
	Err error
}

func (e *SettingError) Error() string { return "segments." + e.Key + ": " + e.Err.Error() }
func (e *SettingError) Unwrap() error { return e.Err }

// Segments opens where the file of segments is: a file, an *s3.Object or a page; nil says
// that there is none. The caller calls done at the end. Secrets are read now, and again at
// each request, so that they can be rotated. The error is a *SettingError.
func Segments(s *configs.Segments) (source segments.Source, done func(), err error) {
	scheme, _, remote := strings.Cut(s.Source, "://")
	switch {
	case s.Source == "":
		return nil, func() {}, nil
	case !remote:
		return segments.File(s.Source), func() {}, nil
	}
	tls, err := s.TLSConfig()
	if err != nil {
		return nil, nil, &SettingError{"ca_file", err}
	}
	if scheme == "s3" {
		return objectOf(s, tls)
	}
	return pageOf(s, tls)
}

func objectOf(s *configs.Segments, tls *tls.Config) (segments.Source, func(), error) {
	o := s3.Options{Location: s.Source, Endpoint: s.S3Endpoint, Region: s.S3Region, TLS: tls}
	if s.S3CredentialsFile != "" {
		o.Credentials = func() (s3.Credentials, error) {
			text, err := s.S3Credentials()
			if err != nil {
				return s3.Credentials{}, err
			}
			keys, err := s3.ParseCredentials(text.Reveal())
			if err != nil {
				return s3.Credentials{}, fmt.Errorf("%s: %w", s.S3CredentialsFile, err)
			}
			return keys, nil
		}
		if _, err := o.Credentials(); err != nil {
			return nil, nil, &SettingError{"s3_credentials_file", err}
		}
	}
	object, err := s3.Open(o)
	if err != nil {
		return nil, nil, &SettingError{"source", err}
	}
	return object, object.Close, nil
}

func pageOf(s *configs.Segments, tls *tls.Config) (segments.Source, func(), error) {
	o := segments.HTTPOptions{URL: s.Source, TLS: tls}
	if s.TokenFile != "" {
		o.Token = func() (string, error) {
			token, err := s.Token()
			return token.Reveal(), err
		}
		if _, err := o.Token(); err != nil {
			return nil, nil, &SettingError{"token_file", err}
		}
	}
	page, err := segments.NewHTTP(o)
	if err != nil {
		return nil, nil, &SettingError{"source", err}
	}
	return page, page.Close, nil
}
