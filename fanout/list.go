package fanout

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Listed is a message to an audience, in the list of those that it got.
type Listed struct {
	Message  uuid.UUID
	Sender   string
	Accepted time.Time
	Expires  time.Time
}

// Place is a place in a list: the newest message comes first, and of those of one
// millisecond the one with the greatest id.
type Place struct {
	At      time.Time // whole milliseconds
	Message uuid.UUID
}

// Place is where a message stands.
func (l *Listed) Place() Place { return Place{l.Accepted, l.Message} }

// placeBytes are those of a Place as text: when, in ms in eight bytes, and the id. They are
// in the order of places.
const placeBytes = 8 + len(uuid.UUID{})

func (p Place) bytes() (b [placeBytes]byte) {
	binary.BigEndian.PutUint64(b[:8], uint64(p.At.UnixMilli()))
	copy(b[8:], p.Message[:])
	return b
}

// Before is a place behind which older comes and newer does not. Who is given it may see
// neither of them: it has no more of newer than tells them apart, which of an id is the time
// and hardly ever more than a byte or two of the rest.
func Before(older, newer *Listed) Place {
	o, b := older.Place().bytes(), newer.Place().bytes()
	same := 0
	for same < placeBytes-1 && o[same] == b[same] {
		same++
	}
	clear(b[same+1:])
	return Place{time.UnixMilli(int64(binary.BigEndian.Uint64(b[:8]))).UTC(), uuid.UUID(b[8:])}
}

// older orders places: below 0 = p comes behind o, as it is older.
func (p Place) older(o Place) int {
	return cmp.Or(p.At.Compare(o.At), slices.Compare(p.Message[:], o.Message[:]))
}

// listName names an audience as no other one is, of this app or of another.
func listName(app string, to To) string { return app + "/" + to.String() }

const day = 24 * time.Hour

// Kept is how long the tables keep what they note of a message (deploy/cassandra/schema.cql).
const Kept = 31 * day

func dayOf(at time.Time) int { return int(at.UnixMilli() / day.Milliseconds()) }

// Messages implements Records. It reads a partition for each day.
func (n *TableNotes) Messages(ctx context.Context, app string, to To, before Place, oldest time.Time, limit int) ([]Listed, error) {
	list := []Listed{}
	for d := dayOf(before.At); d >= dayOf(oldest) && len(list) < limit; d-- {
		var id, sender string
		var at, expires time.Time
		var broken error
		err := n.tables.Query(ctx, "SELECT at, message, sender, expires FROM fanout_messages WHERE audience = ? AND day = ? AND (at, message) < (?, ?) LIMIT ?",
			[]any{listName(app, to), d, before.At, before.Message.String(), limit - len(list)}, []any{&at, &id, &sender, &expires}, func() {
				message, err := uuid.Parse(id)
				if err != nil {
					broken = err
				}
				list = append(list, Listed{message, sender, at.UTC(), expires.UTC()})
			})
		if err = cmp.Or(err, broken); err != nil {
			return nil, fmt.Errorf("reading the messages to an audience: %w", err)
		}
	}
	return notBefore(list, oldest), nil
}

// notBefore are those of a list that were accepted at oldest or later.
func notBefore(list []Listed, oldest time.Time) []Listed {
	return slices.DeleteFunc(list, func(l Listed) bool { return l.Accepted.Before(oldest) })
}

// list notes a job as a message to its audience: what the first job has pinned, so that a
// repeat writes the same row.
func (n *TableNotes) list(ctx context.Context, j *Job) error {
	err := n.tables.Exec(ctx, "INSERT INTO fanout_messages (audience, day, at, message, sender, expires) VALUES (?, ?, ?, ?, ?, ?)",
		listName(j.App, j.To), dayOf(j.Accepted), j.Accepted, j.Message.String(), j.Sender, j.Expires)
	if err != nil {
		return fmt.Errorf("noting a message to an audience: %w", err)
	}
	return nil
}

// Messages implements Records.
func (m *Memory) Messages(_ context.Context, app string, to To, before Place, oldest time.Time, limit int) ([]Listed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []Listed{}
	for _, n := range m.messages {
		if n.job == nil || listName(n.job.App, n.job.To) != listName(app, to) {
			continue
		}
		if l := (Listed{n.job.Message, n.job.Sender, n.job.Accepted, n.job.Expires}); l.Place().older(before) < 0 {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b Listed) int { return b.Place().older(a.Place()) })
	list = notBefore(list, oldest)
	return list[:min(limit, len(list))], nil
}
