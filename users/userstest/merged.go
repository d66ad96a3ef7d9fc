package userstest

import (
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// Merged are users by their ids, in memory, as a registry with its default bounds makes them of
// push.users. It is not safe for concurrent use.
type Merged map[string]*record.User

// Apply merges records in their order.
func (m Merged) Apply(records []users.Record) error {
	for _, r := range records {
		var c record.Change
		if err := c.Read(r.Key, r.Value, time.Now()); err != nil {
			return err
		}
		u := m[c.User]
		if u == nil {
			u = &record.User{}
			m[c.User] = u
		}
		merging := record.Merging{Ready: true, Most: record.DeviceLimits{User: 100, App: 20}, Cases: map[string]bool{}, Unread: map[string]bool{}}
		merging.User(u, &c)
	}
	return nil
}

// Stored is a user as the registry answers; nobody is known who is not there.
func (m Merged) Stored(user string) (s users.Stored) {
	if u := m[user]; u != nil {
		s.User = u.User
		s.Devices = slices.Clone(u.Devices)
	}
	return s
}
