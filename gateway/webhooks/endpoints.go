package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/forms"
)

// Endpoint is where a sender wants to be told, and by what.
type Endpoint struct {
	URL     string
	Secrets [][]byte // each makes a signature of its own
	version string   // changes whenever something of it does
}

// endpointsFile is the content of a file of endpoints.
type endpointsFile struct {
	Webhooks []struct {
		Sender  string   `json:"sender"`
		URL     string   `json:"url"`
		Secrets []string `json:"secrets"`
	} `json:"webhooks"`
}

// endpointsFields are the members of such a file.
var endpointsFields = []string{"webhooks", "sender", "url", "secrets"}

// maxSecrets is how many secrets an endpoint may have: the former one and the next.
const maxSecrets = 2

var senderName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// parseEndpoints reads a file of endpoints. The error says what is wrong, and no secret.
func parseEndpoints(text []byte, check func(netip.Addr) error) (map[string]*Endpoint, error) {
	var file endpointsFile
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, errors.New("not a file of webhooks: " + whatOf(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a file of webhooks: something follows the object")
	}
	// A member that is there twice would have what the other one gives: encoding/json fills what is there.
	if fault := forms.CheckNames(text, endpointsFields); fault != "" {
		return nil, errors.New("not a file of webhooks: " + fault)
	}
	all := make(map[string]*Endpoint, len(file.Webhooks))
	for i, w := range file.Webhooks {
		at := fmt.Sprintf("webhooks[%d]", i)
		if !senderName.MatchString(w.Sender) || all[w.Sender] != nil {
			return nil, fmt.Errorf("%s.sender: want 1 to 64 letters, digits, dots, underscores and dashes, and each once", at)
		}
		if err := checkURL(w.URL, check); err != nil {
			return nil, fmt.Errorf("%s.url: %w", at, err)
		}
		if n := len(w.Secrets); n < 1 || n > maxSecrets {
			return nil, fmt.Errorf("%s.secrets: has %d, want 1 or %d", at, n, maxSecrets)
		}
		e := &Endpoint{URL: w.URL, version: fmt.Sprintf("%q", append(slices.Clone(w.Secrets), w.URL))}
		for j, s := range w.Secrets {
			key, err := ParseSecret(s)
			if err != nil {
				return nil, fmt.Errorf("%s.secrets[%d]: %w", at, j, err)
			}
			e.Secrets = append(e.Secrets, key)
		}
		all[w.Sender] = e
	}
	return all, nil
}

// whatOf is what a decoder's error says, without the text that it found.
func whatOf(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("no JSON at byte %d", syntax.Offset)
	}
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s is no %s", typed.Field, typed.Type)
	}
	return "an unknown field, or it ends too soon"
}

// Endpoints are the endpoints of senders, by a file that is read again when it changes. It
// is safe for concurrent use.
type Endpoints struct {
	read  func() ([]byte, error)
	check func(netip.Addr) error
	now   atomic.Pointer[map[string]*Endpoint] // by sender

	mu   sync.Mutex
	text []byte // guarded by mu; the file as it was last read, in force or not
	err  error  // guarded by mu; why it is not in force; nil = it is
}

// OpenEndpoints reads the file for the first time. check is CheckAddress but in tests.
func OpenEndpoints(read func() ([]byte, error), check func(netip.Addr) error) (*Endpoints, error) {
	e := &Endpoints{read: read, check: check}
	if _, err := e.Reload(); err != nil {
		return nil, err
	}
	return e, nil
}

// Reload reads the file, and puts it in force if it has changed. After an error what was
// in force before stays.
func (e *Endpoints) Reload() (changed bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text, err := e.read()
	if err == nil && e.text != nil && bytes.Equal(text, e.text) {
		return false, e.err
	}
	var all map[string]*Endpoint
	e.text = text
	if err == nil {
		all, err = parseEndpoints(text, e.check)
	} else {
		e.text = nil // once it can be read again, it is looked at again
	}
	if e.err = err; err != nil {
		return false, err
	}
	e.now.Store(&all)
	return true, nil
}

// Watch reads the file again at intervals until ctx ends. told gets the result of each
// reading that changed something, or failed.
func (e *Endpoints) Watch(ctx context.Context, every time.Duration, told func(err error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			changed, err := e.Reload()
			if changed || err != nil || failed {
				told(err)
			}
			failed = err != nil
		}
	}
}

// Of is the endpoint of a sender; nil = it has none.
func (e *Endpoints) Of(sender string) *Endpoint { return (*e.now.Load())[sender] }

// Senders are those that have an endpoint, in order.
func (e *Endpoints) Senders() []string {
	var all []string
	for sender := range *e.now.Load() {
		all = append(all, sender)
	}
	slices.Sort(all)
	return all
}
