package wiring

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/segments/s3"
)

// A source is opened by what its location looks like; what is wrong is named by its key.
func TestSegmentsSource(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		why   string
		s     configs.Segments
		want  segments.Source // of this type
		wrong string          // key
	}{
		{"none", configs.Segments{}, nil, ""},
		{"a file, there or not", configs.Segments{Source: missing}, segments.File(""), ""},
		{"a page", configs.Segments{Source: "https://example.com/users.seg"}, &segments.HTTP{}, ""},
		{"storage", configs.Segments{Source: "s3://audience/users.seg", S3Region: "us-east-1"}, &s3.Object{}, ""},
		{"no such scheme", configs.Segments{Source: "ftp://example.com/users.seg"}, nil, "source"},
		{"a password in the URL", configs.Segments{Source: "https://a:b@example.com/users.seg"}, nil, "source"},
		{"no authorities", configs.Segments{Source: "https://example.com/users.seg", CAFile: missing}, nil, "ca_file"},
		{"no token", configs.Segments{Source: "https://example.com/users.seg", TokenFile: missing}, nil, "token_file"},
		{"no keys", configs.Segments{Source: "s3://audience/users.seg", S3CredentialsFile: missing}, nil, "s3_credentials_file"},
	} {
		source, done, err := Segments(&tt.s)
		if wrong, is := errors.AsType[*SettingError](err); is != (tt.wrong != "") || is && wrong.Key != tt.wrong {
			t.Errorf("%s: %v, want one of %q", tt.why, err, tt.wrong)
			continue
		}
		if err != nil {
			continue
		}
		same := source == nil && tt.want == nil
		switch source.(type) {
		case segments.File:
			_, same = tt.want.(segments.File)
		case *segments.HTTP:
			_, same = tt.want.(*segments.HTTP)
		case *s3.Object:
			_, same = tt.want.(*s3.Object)
		}
		if !same {
			t.Errorf("%s: %T, want %T", tt.why, source, tt.want)
		}
		done()
	}
}
