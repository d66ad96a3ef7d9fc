package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// Right is what a key may do.
type Right string

// The rights.
const (
	Send Right = "send" // messages, as its sender and for its apps
	// Broadcast may send messages to all users of its apps at once, and order what becomes of
	// those.
	Broadcast Right = "broadcast"
	Read      Right = "read" // receipts of these
	// Manage may read and change preferences and devices of any user, as far as they are
	// of its apps, and make tokens by which users do so themselves.
	Manage Right = "users"
	// Admin may ask for any notification by its bare id. Rows do not say who sent them,
	// so without it only a receipt shows what became of a notification.
	Admin Right = "admin"
	// Fleet may see the dashboard of the whole fleet, whose ever the notifications are, if its
	// key is for all apps; with Admin also act there.
	Fleet Right = "dashboard"
)

// anyRight is what every key has.
const anyRight Right = ""

// Bounds of a file of keys.
const (
	maxKeysFile = 4 << 20
	maxKeys     = 10_000
	// MinKey is the shortest key, in bytes: its hash is no secret, so it must be long
	// enough that nobody finds it by trying. 32 characters of base64 have 192 bits.
	MinKey = 32
	maxKey = 512
)

// Caller is who stands behind a key, or a name in certificates.
type Caller struct {
	Name   string // of the key, in logs
	Sender string // the sender_id of all its messages

	apps        map[string]bool
	topics      []string // names, or how they begin where * is last; none = all topics of the apps
	rights      map[Right]bool
	hash        [sha256.Size]byte // of the key, or of the name in certificates; tokens that it makes end when it changes
	certificate string            // the name in its certificates; "" = it has a key
}

func (c *Caller) may(right Right) bool { return c.rights[right] }

// has reports whether the key is for an app.
func (c *Caller) has(app string) bool { return c.apps[app] }

// hasTopic reports whether the key is for topics of this name, if they are of its apps.
func (c *Caller) hasTopic(name string) bool {
	return len(c.topics) == 0 || slices.ContainsFunc(c.topics, func(t string) bool {
		begin, all := strings.CutSuffix(t, "*")
		return t == name || all && strings.HasPrefix(name, begin)
	})
}

// hasJob reports whether the key is for the app of a message to many, and its topic if it has one.
func (c *Caller) hasJob(j *fanout.Job) bool {
	return c.apps[j.App] && (j.To.Kind != fanout.OfTopic || c.hasTopic(j.To.Name))
}

// KeyHash is what the file of keys has of a key: its SHA-256 in hexadecimal digits.
func KeyHash(key string) (string, error) {
	switch {
	case len(key) < MinKey || len(key) > maxKey:
		return "", fmt.Errorf("the key has %d characters, want %d to %d: its hash is no secret, so it must not be found by trying", len(key), MinKey, maxKey)
	case !token68(key):
		return "", errors.New("the key has characters that a header cannot carry: want letters, digits and - . _ ~ + / =")
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:]), nil
}

// token68 is what RFC 9110 allows after "Bearer".
func token68(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") == ""
}

// keysFile is the content of a file of keys.
type keysFile struct {
	Keys []struct {
		Name        string     `json:"name"`
		SHA256      string     `json:"sha256"`
		Certificate string     `json:"certificate"`
		Sender      string     `json:"sender"`
		Apps        []string   `json:"apps"`
		Topics      topicNames `json:"topics"`
		Rights      []Right    `json:"rights"`
	} `json:"keys"`
}

// keysFields are the members of such a file.
var keysFields = []string{"keys", "name", "sha256", "certificate", "sender", "apps", "topics", "rights"}

// topicNames are those of a key. null is none of them, and not all.
type topicNames []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *topicNames) UnmarshalJSON(text []byte) error {
	names := []string{}
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	if len(names) == 0 { // also null
		return errors.New("topics: none; leave them out for all topics of the apps")
	}
	*t = names
	return nil
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// parseKeys reads a file of keys. The error says what is wrong with which key.
func parseKeys(text []byte) ([]*Caller, error) {
	var file keysFile
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&file)
	if err != nil && strings.HasPrefix(err.Error(), "json: unknown field") { // which it quotes: it may be a key
		err = errors.New("a member that is not known; there are " + strings.Join(keysFields, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("not a file of keys: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a file of keys: something follows the object")
	}
	// A member that is there twice would have what the other one gives: encoding/json fills what is there.
	if fault := forms.CheckNames(text, keysFields); fault != "" {
		return nil, errors.New("not a file of keys: " + fault)
	}
	if len(file.Keys) == 0 || len(file.Keys) > maxKeys {
		return nil, fmt.Errorf("has %d keys, want 1 to %d", len(file.Keys), maxKeys)
	}
	callers, names, hashes := make([]*Caller, 0, len(file.Keys)), map[string]bool{}, map[[sha256.Size]byte]bool{}
	for i, k := range file.Keys {
		c := &Caller{Name: k.Name, Sender: k.Sender, apps: map[string]bool{}, rights: map[Right]bool{}}
		if !keyName.MatchString(k.Name) || names[k.Name] {
			return nil, fmt.Errorf("keys[%d].name: want 1 to 64 letters, digits, dots, underscores and dashes, and each once", i)
		}
		if err := c.knownBy(k.SHA256, k.Certificate); err != nil {
			return nil, fmt.Errorf("keys[%d].%w", i, err)
		}
		switch {
		case hashes[c.hash]:
			return nil, fmt.Errorf("keys[%d]: what %s is known by is there under another name", i, k.Name)
		case !keyName.MatchString(k.Sender):
			return nil, fmt.Errorf("keys[%d].sender: want 1 to 64 letters, digits, dots, underscores and dashes", i)
		case len(k.Rights) == 0:
			return nil, fmt.Errorf("keys[%d].rights: none", i)
		case len(k.Apps) == 0:
			return nil, fmt.Errorf("keys[%d].apps: none", i)
		}
		for _, r := range k.Rights {
			if !slices.Contains([]Right{Send, Broadcast, Read, Manage, Admin, Fleet}, r) {
				return nil, fmt.Errorf("keys[%d].rights: want send, broadcast, read, users, admin or dashboard", i)
			}
			if r == Fleet && len(k.Topics) > 0 {
				return nil, fmt.Errorf("keys[%d].rights: %q is for keys of all topics: the dashboard shows every one", i, r)
			}
			if r == Fleet && c.certificate != "" {
				return nil, fmt.Errorf("keys[%d].rights: %q is for keys: who opens the dashboard types one", i, r)
			}
			c.rights[r] = true
		}
		for _, app := range k.Apps {
			if !keyName.MatchString(app) {
				return nil, fmt.Errorf("keys[%d].apps: %q is no name of an app", i, app)
			}
			c.apps[app] = true
		}
		for _, t := range k.Topics {
			if err := subscriptions.CheckName(strings.TrimSuffix(t, "*")); err != nil {
				return nil, fmt.Errorf("keys[%d].topics: %q is no name of a topic, nor how some begin, as news.*", i, t)
			}
		}
		c.topics = k.Topics
		names[k.Name], hashes[c.hash] = true, true
		callers = append(callers, c)
	}
	return callers, nil
}

// knownBy notes the hash of a caller's key, or the name in its certificates: one of them.
func (c *Caller) knownBy(keyHash, certificate string) error {
	if certificate == "" {
		hash, err := hex.DecodeString(keyHash)
		if err != nil || copy(c.hash[:], hash) != sha256.Size || len(hash) != sha256.Size {
			return errors.New("sha256: want 64 hexadecimal digits (pushgateway keys hash), or certificate in its place")
		}
		return nil
	}
	if keyHash != "" {
		return errors.New("certificate: there is a sha256 as well; make two entries of one sender for that")
	}
	if err := checkCertificateName(certificate); err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	c.certificate, c.hash = certificate, sha256.Sum256([]byte("certificate "+certificate))
	return nil
}

// Callers are those who may call, by a file that is read again when it changes. It is
// safe for concurrent use.
type Callers struct {
	path string
	now  atomic.Pointer[ring]

	mu   sync.Mutex
	text []byte // guarded by mu; the file as it was last read, in force or not
	err  error  // guarded by mu; why it is not in force; nil = it is
}

// OpenCallers reads the file for the first time.
func OpenCallers(path string) (*Callers, error) {
	c := &Callers{path: path}
	if _, err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the file, and puts it in force if it has changed. After an error what
// was in force before stays.
func (c *Callers) Reload() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := readKeys(c.path)
	if err == nil && c.text != nil && bytes.Equal(text, c.text) {
		return false, c.err
	}
	var callers []*Caller
	c.text = text // nil after an error: once it can be read again, it is looked at again
	if err == nil {
		callers, err = parseKeys(text)
	}
	if err != nil {
		c.err = fmt.Errorf("keys of callers in %s: %w", c.path, err)
		return false, c.err
	}
	c.err = nil
	c.now.Store(newRing(callers))
	return true, nil
}

// ring is all callers by what they are known by. It does not change.
type ring struct {
	keys         map[[sha256.Size]byte]*Caller // by the hashes of their keys
	certificates map[string]*Caller            // by the names in their certificates
	names        map[string]*Caller
}

func newRing(callers []*Caller) *ring {
	r := &ring{keys: map[[sha256.Size]byte]*Caller{}, certificates: map[string]*Caller{}, names: make(map[string]*Caller, len(callers))}
	for _, c := range callers {
		r.names[c.Name] = c
		if c.certificate != "" {
			r.certificates[c.certificate] = c
		} else {
			r.keys[c.hash] = c
		}
	}
	return r
}

func readKeys(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeysFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxKeysFile:
		return nil, fmt.Errorf("over %d MiB", maxKeysFile>>20)
	}
	return text, nil
}

// Watch reads the file again at intervals until ctx ends. told gets the result of each
// reading that changed something, or failed.
func (c *Callers) Watch(ctx context.Context, every time.Duration, told func(err error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			changed, err := c.Reload()
			if changed || err != nil || failed {
				told(err)
			}
			failed = err != nil
		}
	}
}

// Len is how many keys, and names in certificates, are in force.
func (c *Callers) Len() int { return len(c.now.Load().names) }

// ByCertificate is how many of them are names in certificates.
func (c *Callers) ByCertificate() int { return len(c.now.Load().certificates) }

// of finds the caller of a request by its key; by its certificate, if it has no key.
func (c *Callers) of(r *http.Request) (*Caller, *Problem) {
	if leaf := certificateOf(r); leaf != nil {
		return c.certified(r, leaf)
	}
	key, problem := bearer(r.Header)
	if problem != nil {
		return nil, problem
	}
	found := c.With(key)
	if found == nil {
		return nil, newProblem(codeUnauthorized, "this key is not known")
	}
	return found, nil
}

// bearer is what a request's one Authorization header carries.
func bearer(h http.Header) (string, *Problem) {
	values := h["Authorization"]
	if len(values) != 1 {
		return "", newProblem(codeUnauthorized, "want one header Authorization: Bearer KEY")
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	key = strings.Trim(key, " ")
	if !strings.EqualFold(scheme, "Bearer") || !token68(key) || len(key) > maxKey {
		return "", newProblem(codeUnauthorized, "want one header Authorization: Bearer KEY")
	}
	return key, nil
}

// With is the caller with this key; nil = nobody. What is looked up is the hash of the key,
// which is no secret: whoever learns of it by how long that takes has nothing that opens.
func (c *Callers) With(key string) *Caller { return c.now.Load().keys[sha256.Sum256([]byte(key))] }

// Named is the caller whose key has this name; nil = none has.
func (c *Callers) Named(name string) *Caller { return c.now.Load().names[name] }
