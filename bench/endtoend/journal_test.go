//go:build unix

package endtoend

import (
	"io"
	"log/slog"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// noted checks that each record that could be read is found by its user, once, and nothing
// else is: whatever has happened to workers meanwhile.
func (w *world) noted(records []fleet.Record) {
	w.t.Helper()
	o, err := wiring.Cassandra(w.Config, nil, slog.New(slog.NewTextHandler(io.Discard, nil)))
	check(w.t, err)
	session, err := status.OpenSession(waiting(w.t), o)
	check(w.t, err)
	defer session.Close()
	type whose struct{ user, id string }
	found := map[whose]int{}
	var one whose
	check(w.t, session.Query(waiting(w.t), "SELECT user, id FROM user_messages", nil, []any{&one.user, &one.id}, func() { found[one]++ }))
	missing := 0
	for i := range records {
		var m push.Message
		if records[i].Want.Copy || decode.Message(records[i].Value, &m) != nil || m.UserID == "" {
			continue
		}
		if found[whose{m.UserID, m.ID}] == 0 {
			missing++
		}
		found[whose{m.UserID, m.ID}]--
	}
	others := 0
	for _, n := range found {
		if n > 0 {
			others += n
		}
	}
	w.t.Logf("%d notifications are found by user", len(found))
	if missing > 0 || others > 0 || len(found) == 0 {
		w.t.Errorf("%d notifications are not found by their users, and %d entries are of none", missing, others)
	}
}
