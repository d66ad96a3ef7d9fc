package configs

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// Secret is a password or a key. However it is printed, logged or encoded, it
// shows as "[secret]"; only Reveal gives it away.
type Secret struct{ text string }

const hidden = "[secret]"

// Reveal gives the text itself.
func (s Secret) Reveal() string { return s.text }

// String hides the text.
func (Secret) String() string { return hidden }

// Format hides the text from every verb of package fmt.
func (Secret) Format(f fmt.State, _ rune) { io.WriteString(f, hidden) }

// MarshalText hides the text from JSON, XML and the like.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON hides the text.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// MarshalYAML hides the text.
func (Secret) MarshalYAML() (any, error) { return hidden, nil }

// LogValue hides the text from package slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// maxSecret is more than the largest key file.
const maxSecret = 64 << 10

// ReadSecret reads a secret from its file, less line breaks at the end. A file
// that others than its owner may read or change is refused, except where an
// orchestrator put it: in a Kubernetes volume (reached through its ..data
// link) or under /run/secrets of a container. There the modes are the
// platform's, and no other user can get at the directory.
func ReadSecret(path string) (Secret, error) {
	if path == "" {
		return Secret{}, errors.New("reading a secret: no file given")
	}
	if isContent(path) {
		return Secret{}, errors.New("reading a secret: what is given looks like what is to be in the file, and not like the file's name")
	}
	f, err := os.Open(path)
	if err != nil {
		return Secret{}, fmt.Errorf("reading a secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Secret{}, fmt.Errorf("reading a secret: %w", err)
	}
	if mode := info.Mode(); mode.Perm()&0o077 != 0 && !mounted(path) {
		return Secret{}, fmt.Errorf("reading a secret: %s has mode %04o: users other than its owner have access (chmod 600)", path, mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return Secret{}, fmt.Errorf("reading a secret: %w", err)
	case len(text) > maxSecret:
		return Secret{}, fmt.Errorf("reading a secret: %s is over %s", path, Bytes(maxSecret))
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return Secret{}, fmt.Errorf("reading a secret: %s is empty", path)
	}
	return Secret{secret}, nil
}

// isContent reports whether what should be the path of a secret seems to be the secret
// itself. An error of the file system would repeat it.
func isContent(path string) bool {
	return strings.ContainsAny(path, "\r\n\x00") || strings.Contains(path, "-----BEGIN ") || strings.HasPrefix(strings.TrimSpace(path), "{")
}

// mounted reports whether an orchestrator put the file there. Kubernetes links
// each file of a volume to ..data/<name>, and ..data to a directory with a
// time in its name.
func mounted(path string) bool {
	abs, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	if strings.HasPrefix(abs, "/run/secrets/") {
		return true
	}
	target, err := os.Readlink(abs)
	if err != nil || !strings.HasPrefix(target, "..data"+string(filepath.Separator)) {
		return false
	}
	data, err := os.Lstat(filepath.Join(filepath.Dir(abs), "..data"))
	return err == nil && data.Mode()&os.ModeSymlink != 0
}

// Password reads Kafka's password; empty without a mechanism.
func (s *SASL) Password() (Secret, error) { return optionalSecret(s.PasswordFile) }

// Password reads Redis's password; empty without a file.
func (r *Redis) Password() (Secret, error) { return optionalSecret(r.PasswordFile) }

// Password reads Cassandra's password; empty without a file.
func (c *Cassandra) Password() (Secret, error) { return optionalSecret(c.PasswordFile) }

// Key reads the p8 key.
func (a *APNS) Key() (Secret, error) { return ReadSecret(a.KeyFile) }

// ServiceAccount reads the service account's JSON.
func (f *FCM) ServiceAccount() (Secret, error) { return ReadSecret(f.ServiceAccountFile) }

func optionalSecret(path string) (Secret, error) {
	if path == "" {
		return Secret{}, nil
	}
	return ReadSecret(path)
}
