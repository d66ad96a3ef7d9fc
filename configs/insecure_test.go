package configs

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pathsOf are the keys that an error of this package names.
func pathsOf(t *testing.T, err error) (paths []string) {
	t.Helper()
	var ps Problems
	if err != nil && !errors.As(err, &ps) {
		t.Fatalf("got %T, want Problems: %v", err, err)
	}
	for _, p := range ps {
		paths = append(paths, p.Path)
	}
	return paths
}

// A password goes over TLS, or its owner says that it may go without: also to
// an address of this machine, as servers name others.
func TestPasswordsWantTLS(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		set, tls, says func(*Config)
		path, note     string
	}{
		{"kafka", func(c *Config) { c.Kafka.SASL = SASL{Mechanism: "PLAIN", Username: "u", PasswordFile: "p"} },
			func(c *Config) { c.Kafka.TLS.Enabled = true }, func(c *Config) { c.Kafka.SASL.Insecure = true },
			"kafka.sasl.password_file", "kafka.sasl.insecure"},
		{"redis", func(c *Config) { c.Redis.PasswordFile = "p" },
			func(c *Config) { c.Redis.TLS.Enabled = true }, func(c *Config) { c.Redis.Insecure = true },
			"redis.password_file", "redis.insecure"},
		{"cassandra", func(c *Config) { c.Cassandra.Username, c.Cassandra.PasswordFile = "u", "p" },
			func(c *Config) { c.Cassandra.TLS.Enabled = true }, func(c *Config) { c.Cassandra.Insecure = true },
			"cassandra.password_file", "cassandra.insecure"},
	} {
		for _, with := range []struct {
			what    string
			changes []func(*Config)
			refused bool
			told    bool
		}{
			{"plaintext", []func(*Config){tt.set}, true, false},
			{"TLS", []func(*Config){tt.set, tt.tls}, false, false},
			{"plaintext that is accepted", []func(*Config){tt.set, tt.says}, false, true},
			{"TLS and an acceptance of what does not happen", []func(*Config){tt.set, tt.tls, tt.says}, false, false},
			{"no password", []func(*Config){tt.says}, false, false},
		} {
			c := Default()
			for _, change := range with.changes {
				change(c)
			}
			paths, want := pathsOf(t, c.Validate()), []string(nil)
			if with.refused {
				want = []string{tt.path}
			}
			if !slices.Equal(paths, want) {
				t.Errorf("%s, %s: problems of %q, want %q", tt.name, with.what, paths, want)
			}
			told := slices.ContainsFunc(c.Insecure(), func(n Note) bool { return n.Path == tt.note })
			if told != with.told || len(c.Insecure()) > 1 {
				t.Errorf("%s, %s: says %v, want %v of %s", tt.name, with.what, c.Insecure(), with.told, tt.note)
			}
			for _, n := range c.Insecure() {
				if !slices.Contains(c.Notes(), n) {
					t.Errorf("%s, %s: config check does not tell %v", tt.name, with.what, n)
				}
			}
		}
	}
	// SCRAM does not send the password.
	c := Default()
	c.Kafka.SASL = SASL{Mechanism: "SCRAM-SHA-512", Username: "u", PasswordFile: "p"}
	if err := c.Validate(); err != nil || len(c.Insecure()) > 0 {
		t.Errorf("SCRAM without TLS: %v, %v", err, c.Insecure())
	}
}

// An access token that was fetched over plaintext is everybody's, unless the
// plaintext stays on this machine.
func TestTokensWantTLS(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		uri     string
		refused bool
	}{
		{"https://oauth2.googleapis.com/token", false},
		{"", false},
		{"http://oauth2.example.com/token", true},
		{"HTTP://oauth2.example.com/token", true},
		{"http://10.0.0.1:8080/token", true},
		{"http://localhost.example.com/token", true},
		{"http://127.0.0.1@example.com/token", true},
		{"http://127.0.0.1:8080/token", false},
		{"http://[::1]:8080/token", false},
		{"http://localhost/token", false},
	} {
		file := writeFile(t, filepath.Join(t.TempDir(), "account.json"), `{"token_uri": "`+tt.uri+`"}`, 0o600)
		for _, insecure := range []bool{false, true} {
			c := Default()
			c.Apps = []App{{Name: "shop", FCM: &FCM{Project: "p", ServiceAccountFile: file, URL: "https://fcm.googleapis.com", Insecure: insecure}}}
			err, want := c.CheckRun(), []string(nil)
			if tt.refused && !insecure {
				want = []string{"apps[0].fcm.service_account_file"}
			}
			if paths := pathsOf(t, err); !slices.Equal(paths, want) {
				t.Errorf("%q, insecure %v: problems of %q, want %q", tt.uri, insecure, paths, want)
			}
			if err != nil && (strings.Contains(err.Error(), "example.com") || strings.Contains(err.Error(), "10.0.0.1")) {
				t.Errorf("%q: content in %v", tt.uri, err)
			}
			if told := len(c.Insecure()) == 1 && c.Insecure()[0].Path == "apps[0].fcm.insecure"; told != insecure {
				t.Errorf("%q, insecure %v: says %v", tt.uri, insecure, c.Insecure())
			}
		}
	}
}
