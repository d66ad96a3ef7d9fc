package gateway

import (
	"context"
	"sync"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// people is push.users and the registry behind it, in memory: what is appended is merged
// at once, as a registry does it.
type people struct {
	mu       sync.Mutex
	records  []users.Record   // guarded by mu; acknowledged
	users    userstest.Merged // guarded by mu
	readErr  error            // guarded by mu
	err      error            // guarded by mu; of Append
	gate     chan struct{}    // guarded by mu; Append waits until it is closed; nil = not at all
	stubborn bool             // guarded by mu; it waits for gate alone, as records do that are on their way
}

func newPeople() *people { return &people{users: userstest.Merged{}} }

// Append implements users.Log.
func (p *people) Append(ctx context.Context, records []users.Record) error {
	p.mu.Lock()
	gate, stubborn := p.gate, p.stubborn
	p.mu.Unlock()
	switch {
	case gate != nil && stubborn:
		<-gate
	case gate != nil:
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if err := p.users.Apply(records); err != nil {
		return err
	}
	p.records = append(p.records, records...)
	return nil
}

// Stored implements Registry.
func (p *people) Stored(ctx context.Context, user string) (users.Stored, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr != nil {
		return users.Stored{}, p.readErr
	}
	return p.users.Stored(user), ctx.Err()
}

// Preferences implements Registry.
func (p *people) Preferences(ctx context.Context, user string) (push.Preferences, error) {
	u, err := p.Stored(ctx, user)
	if err == nil && u.Quarantine&(push.PreferencesBroken|push.PreferencesUnknown) != 0 {
		err = errAway
	}
	return u.Preferences, err
}

// set changes what they answer.
func (p *people) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// last is the record that was appended last.
func (p *people) last() users.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) == 0 {
		return users.Record{}
	}
	return p.records[len(p.records)-1]
}

// count is how many were appended.
func (p *people) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.records)
}
