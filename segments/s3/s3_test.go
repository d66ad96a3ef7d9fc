package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/segments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// storage is one bucket, "audience", of a storage that wants signatures.
type storage struct {
	t *testing.T

	mu      sync.Mutex
	objects map[string][]byte // guarded by mu
	gets    int               // guarded by mu; bodies that were sent
	token   string            // guarded by mu; the session token of the last request
	signed  bool              // guarded by mu; the last request was signed
}

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=AKEXAMPLE/\d{8}/eu-central-1/s3/aws4_request, ?SignedHeaders=[a-z0-9;-]*host[a-z0-9;-]*, ?Signature=[0-9a-f]{64}$`)

func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Accept-Encoding") == "gzip" {
		s.t.Error("compressed contents were asked for: their size and ETag may be others")
	}
	refuse := func(status int, code string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>because of %s</Message></Error>", code, code)
	}
	s.token, s.signed = r.Header.Get("X-Amz-Security-Token"), authorization.MatchString(r.Header.Get("Authorization"))
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	object, found := s.objects[key]
	switch {
	case bucket == "public" && !s.signed && r.Header.Get("Authorization") == "":
	case !s.signed:
		refuse(http.StatusForbidden, "AccessDenied")
		return
	}
	switch r.Method {
	case http.MethodPut:
		body, err := io.ReadAll(r.Body)
		sum := sha256.Sum256(body)
		if got := r.Header.Get("X-Amz-Content-Sha256"); err != nil || got != hex.EncodeToString(sum[:]) {
			s.t.Errorf("put: %v, SHA-256 %s", err, got)
		}
		s.objects[key] = body
	default:
		if !found {
			refuse(http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(object)))
		if !strings.Contains(r.Header.Get("If-None-Match"), fmt.Sprintf("%x", sha256.Sum256(object))) {
			s.gets++
		}
		http.ServeContent(w, r, "", time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), bytes.NewReader(object))
	}
}

const secret = "[default]\naws_access_key_id = AKEXAMPLE\naws_secret_access_key = SECRETSECRET\naws_session_token = TOKENTOKEN\n"

func parsed(text string) func() (Credentials, error) {
	return func() (Credentials, error) { return ParseCredentials(text) }
}

func (s *storage) open(o Options) *Object {
	s.t.Helper()
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	if o.Endpoint == "" {
		o.Endpoint = server.URL
	}
	o.Region = "eu-central-1"
	object, err := Open(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(object.Close)
	return object
}

func fileOf(t *testing.T, version uint64) []byte {
	t.Helper()
	var b segments.Builder
	for _, err := range []error{b.AddGroup("g", true, segments.ByRecord), b.AddUsers("g", "a", segments.UsersOf(1, 2, uint32(version)))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build(version, time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := s.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func (o *Object) put(t *testing.T, file []byte) {
	t.Helper()
	sum := sha256.Sum256(file)
	if err := o.Put(t.Context(), bytes.NewReader(file), int64(len(file)), hex.EncodeToString(sum[:])); err != nil {
		t.Fatal(err)
	}
}

// Put, load, load again, replace, break.
func TestObjectAsSource(t *testing.T) {
	s := &storage{t: t, objects: map[string][]byte{}}
	o := s.open(Options{Location: "s3://audience/live/users.seg", Credentials: parsed(secret)})
	w := segments.NewWatcher(o, segments.WatcherOptions{})
	if err := w.Poll(t.Context()); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "s3://audience/live/users.seg") {
		t.Errorf("nothing there: %v", err)
	}
	o.put(t, fileOf(t, 1))
	for range 3 {
		if err := w.Poll(t.Context()); err != nil || w.Set().Version() != 1 {
			t.Fatal(err)
		}
	}
	if s.gets != 1 || s.token != "TOKENTOKEN" {
		t.Errorf("%d bodies were sent, session token %q", s.gets, s.token)
	}
	o.put(t, fileOf(t, 2))
	if err := w.Poll(t.Context()); err != nil || w.Set().Version() != 2 {
		t.Errorf("%v, version %d", err, w.Set().Version())
	}
	three := fileOf(t, 3)
	o.put(t, three[:len(three)-1])
	for range 2 {
		err := w.Poll(t.Context())
		if refused, ok := errors.AsType[*segments.RefusedError](err); !ok || refused.Reason != segments.RefusedTruncated || w.Set().Version() != 2 {
			t.Errorf("%v, version %d", err, w.Set().Version())
		}
	}
	s.mu.Lock()
	s.objects = map[string][]byte{}
	s.mu.Unlock()
	if err := w.Poll(t.Context()); !errors.Is(err, ErrNotFound) || w.Set().Version() != 2 {
		t.Errorf("removed: %v", err)
	}
	if s.gets != 3 {
		t.Errorf("%d bodies were sent", s.gets)
	}
}

// A bucket that everybody may read needs no credentials.
func TestUnsigned(t *testing.T) {
	s := &storage{t: t, objects: map[string][]byte{"users.seg": fileOf(t, 1)}}
	o := s.open(Options{Location: "s3://public/users.seg"})
	c, err := o.Open(t.Context(), "")
	if err != nil || s.signed {
		t.Fatalf("%v, signed %v", err, s.signed)
	}
	defer c.Body.Close()
	if _, err := segments.Read(c.Body, 0); err != nil || c.Size != int64(len(fileOf(t, 1))) {
		t.Errorf("%v, size %d", err, c.Size)
	}
}

// Without an endpoint it is Amazon's of the region; without a region that of most
// other storages.
func TestDefaults(t *testing.T) {
	for _, tt := range [][2]string{{"", "https://s3.us-east-1.amazonaws.com"}, {"eu-central-1", "https://s3.eu-central-1.amazonaws.com"}} {
		o, err := Open(Options{Location: "s3://audience/users.seg", Region: tt[0]})
		if err != nil {
			t.Fatal(err)
		}
		if got := o.core.EndpointURL().String(); got != tt[1] {
			t.Errorf("region %q: %s", tt[0], got)
		}
	}
}

// Only a server whose certificate is trusted is talked to.
func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(&storage{t: t, objects: map[string][]byte{"users.seg": fileOf(t, 1)}})
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the client that does not trust it
	server.StartTLS()
	defer server.Close()
	for _, trusted := range []bool{true, false} {
		options := Options{Location: "s3://public/users.seg", Endpoint: server.URL}
		if trusted {
			options.TLS = server.Client().Transport.(*http.Transport).TLSClientConfig
		}
		o, err := Open(options)
		if err != nil {
			t.Fatal(err)
		}
		c, err := o.Open(t.Context(), "")
		if trusted != (err == nil) || err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("trusted %v: %v", trusted, err)
		}
		if err == nil {
			_ = c.Body.Close()
		}
		o.Close()
	}
}

func TestErrorsHaveNoSecrets(t *testing.T) {
	s := &storage{t: t, objects: map[string][]byte{}}
	for _, tt := range []struct {
		why  string
		o    Options
		text string
	}{
		{"another key", Options{Credentials: parsed(strings.Replace(secret, "AKEXAMPLE", "AKOTHER", 1))}, "403 AccessDenied: because of AccessDenied"},
		{"no credentials", Options{Credentials: func() (Credentials, error) { return Credentials{}, errors.New("no file") }}, "the credentials: no file"},
		{"nobody listens", Options{Endpoint: "http://127.0.0.1:1", Credentials: parsed(secret)}, "connection refused"},
	} {
		tt.o.Location = "s3://audience/users.seg"
		_, err := s.open(tt.o).Open(t.Context(), "")
		if err == nil || !strings.Contains(err.Error(), tt.text) || !strings.HasPrefix(err.Error(), "s3://audience/users.seg: ") || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "TOKEN") || strings.Contains(err.Error(), "Get ") {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.text)
		}
	}
	c, err := ParseCredentials(secret)
	if text := fmt.Sprintf("%v %+v %#v %s", c, c, c, c); err != nil || strings.Contains(text, "SECRET") || strings.Contains(text, "TOKEN") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		location, endpoint string
		text               string // empty = fine
	}{
		{"s3://bucket/key", "", ""},
		{"s3://bucket/a/b.seg", "https://s3.example.com:9000/", ""},
		{"s3://bucket/", "", "s3://bucket/key"},
		{"s3://bucket", "", "s3://bucket/key"},
		{"s3:///key", "", "s3://bucket/key"},
		{"https://bucket/key", "", "s3://bucket/key"},
		{"s3://AK:SECRET@bucket/key", "", "s3://bucket/key"},
		{"s3://bucket/key", "s3.example.com", "the endpoint is not"},
		{"s3://bucket/key", "https://-s3-", "s3: "},
		{"s3://bucket/key", "https://u:SECRET@s3.example.com", "the endpoint is not"},
		{"s3://bucket/key", "https://s3.example.com/minio", "the endpoint is not"},
	} {
		_, err := Open(Options{Location: tt.location, Endpoint: tt.endpoint})
		if (err == nil) != (tt.text == "") || err != nil && (!strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "SECRET")) {
			t.Errorf("%s at %q: %v, want %q", tt.location, tt.endpoint, err, tt.text)
		}
	}
}

func TestParseCredentials(t *testing.T) {
	for _, tt := range []struct {
		why, text string
		want      Credentials
		fault     string
	}{
		{"the form of Amazon's tools", secret, Credentials{"AKEXAMPLE", "SECRETSECRET", "TOKENTOKEN"}, ""},
		{"without a profile, with a comment", "# ours\naws_access_key_id=A\naws_secret_access_key=b=c\n", Credentials{"A", "b=c", ""}, ""},
		{"another profile first", "[other]\naws_access_key_id=X\nnonsense\n[default]\naws_access_key_id=A\naws_secret_access_key=B\nregion=r", Credentials{"A", "B", ""}, ""},
		{"another profile only", "[other]\naws_access_key_id=A\naws_secret_access_key=B\n", Credentials{}, "missing"},
		{"half of them", "aws_access_key_id=A\n", Credentials{}, "missing"},
		{"nothing", "", Credentials{}, "missing"},
		{"a password alone", "SECRET\n", Credentials{}, "line 1: not of the form key = value"},
		{"a line without end", "a=" + strings.Repeat("SECRET", 20_000), Credentials{}, "too long"},
	} {
		got, err := ParseCredentials(tt.text)
		if got != tt.want || (err == nil) != (tt.fault == "") || err != nil && (!strings.Contains(err.Error(), tt.fault) || strings.Contains(err.Error(), "SECRET")) {
			t.Errorf("%s: %v, %v", tt.why, got, err)
		}
	}
}
