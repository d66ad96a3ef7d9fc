package audiences

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/fanout"
)

const (
	selectWritten = "SELECT WRITETIME(since) FROM app_users WHERE app = ? AND slice = ? AND user = ?"
	deleteMember  = "DELETE FROM app_users USING TIMESTAMP ? WHERE app = ? AND slice = ? AND user = ?"
)

// Count is of how many of these apps a user is a member.
func (s *Store) Count(ctx context.Context, user string, apps []string) (rows int, err error) {
	for _, app := range apps {
		_, there, err := s.Since(ctx, app, user)
		if err != nil {
			return rows, err
		}
		if there {
			rows++
		}
	}
	return rows, nil
}

// Forget removes a user from these apps: for an erasure, and for nothing else, as each row
// becomes a tombstone, also where there is none yet. So what was registered before the call
// and is noted only later stays away, as long as the table keeps tombstones. What is
// registered after it holds. It may be repeated.
func (s *Store) Forget(ctx context.Context, user string, apps []string) error {
	for _, app := range apps {
		if err := checkNames(app, user); err != nil {
			return err
		}
		slice := int16(fanout.SliceOf(user))
		// No clock that was ahead keeps a row from being deleted.
		at, written := s.now().UnixMicro(), int64(0)
		err := s.tables.Query(ctx, selectWritten, []any{app, slice, user}, []any{&written}, func() { at = max(at, written) })
		if err != nil {
			return fmt.Errorf("audiences: reading when a user was noted: %w", err)
		}
		if err := s.tables.Exec(ctx, deleteMember, at, app, slice, user); err != nil {
			return fmt.Errorf("audiences: removing a user: %w", err)
		}
	}
	return nil
}
