package configs

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"
)

// Segments say where the file is that knows which users are in which segment.
type Segments struct {
	Source            string        `yaml:"source"` // a file, an http(s) URL or s3://bucket/key; empty = there are no segments
	Interval          time.Duration `yaml:"interval" check:"min=1s,max=24h"`
	MaxBytes          Bytes         `yaml:"max_bytes" check:"min=1KiB,max=64GiB"`
	TokenFile         string        `yaml:"token_file"`
	CAFile            string        `yaml:"ca_file"`
	S3Endpoint        string        `yaml:"s3_endpoint"`
	S3Region          string        `yaml:"s3_region" check:"name"`
	S3CredentialsFile string        `yaml:"s3_credentials_file"`
}

// Token is the bearer token of an https source, empty without one.
func (s *Segments) Token() (Secret, error) { return optionalSecret(s.TokenFile) }

// S3Credentials are the text of the credentials file, empty without one.
func (s *Segments) S3Credentials() (Secret, error) { return optionalSecret(s.S3CredentialsFile) }

// TLSConfig is the client's side of connections to the source.
func (s *Segments) TLSConfig() (*tls.Config, error) { return clientTLS(s.CAFile) }

// checkSegments: what is for one kind of source is not for another.
func (c *Config) checkSegments(ps *Problems) {
	s := &c.Segments
	if s.S3CredentialsFile != "" && !strings.HasPrefix(s.Source, "s3://") {
		ps.add("segments.s3_credentials_file", "is for a source in S3-compatible storage, s3://bucket/key")
	}
	if s.TokenFile != "" && !strings.HasPrefix(s.Source, "https://") && !strings.HasPrefix(s.Source, "http://") {
		ps.add("segments.token_file", "is for a source with an https URL")
	}
}

// aboutNobody notes rules that name segments while there are none.
func (c *Config) aboutNobody() (notes []Note) {
	if c.Segments.Source != "" {
		return nil
	}
	for i := range c.Limits.Rules {
		if c.Limits.Rules[i].namesSegments() {
			notes = append(notes, Note{fmt.Sprintf("limits.rules[%d]", i), "names segments, and segments.source is empty: no user is in one"})
		}
	}
	return notes
}

func (r *Rule) namesSegments() bool { return len(r.Segments)+len(r.SegmentMax) > 0 }
