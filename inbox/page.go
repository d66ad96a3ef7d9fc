package inbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

const (
	selectPage = "SELECT at, id, type, lane, sender, priority, content, expires, read, unread, WRITETIME(type), shown FROM inbox " +
		"WHERE user = ? AND app = ? AND period = ? AND (at, id) < (?, ?) LIMIT ?"
	selectUpTo = "SELECT at, set_at FROM inbox_read WHERE user = ? AND app = ?"
)

// chunk is how many contents are read at once: they have up to 64 KiB.
const chunk = 20

// behindSlack is added to what is read of the past, where an entry may have been kept
// longer than its time says.
const behindSlack = 2 * time.Hour

// Page reads the entries behind a position, the newest first, the user's own and those of
// topics that the user follows: limit of them, or fewer if their contents have MaxBytes
// together. end = there are no older ones. An entry that has died since its place was read
// has no content.
func (s *Store) Page(ctx context.Context, k Key, follows []Follow, behind Position, limit int) (page []Entry, end bool, err error) {
	if err := checkPage(follows, limit); err != nil {
		return nil, false, err
	}
	if page, end, err = s.merge(ctx, k, follows, behind, limit); err != nil {
		return nil, false, err
	}
	read, err := s.fill(ctx, k.App, page)
	if err != nil {
		return nil, false, err
	}
	shown := cut(page[:read])
	return shown, end && len(shown) == len(page), nil
}

// merge finds a page's entries, those of topics without what is in their rows.
func (s *Store) merge(ctx context.Context, k Key, follows []Follow, behind Position, limit int) (page []Entry, end bool, err error) {
	bytes := 0
	end, err = s.walk(ctx, k, follows, behind, s.ownRows, func() int { return limit - len(page) }, func(f *found) bool {
		page, bytes = append(page, f.Entry), bytes+len(f.Content)
		return len(page) < limit && bytes <= MaxBytes
	})
	return page, end, err
}

// walk calls each with the entries behind a position, until it says that it is enough. own
// reads the user's rows, and want is how many entries are needed yet, which is at least 1.
func (s *Store) walk(ctx context.Context, k Key, follows []Follow, behind Position, own ownReader, want func() int, each func(*found) bool) (end bool, err error) {
	if err := s.place(ctx); err != nil {
		return false, err
	}
	defer s.leave()
	u, err := s.upTo(ctx, k)
	if err != nil {
		return false, err
	}
	now := s.now()
	first, oldest := min(period(behind.At), period(now.Add(ahead))), period(now.Add(-s.ttl-behindSlack))
	mine := source{behind: behind, period: first, oldest: oldest, read: func(period int, behind Position, want int) ([]found, bool, error) {
		return own(ctx, k, period, behind, want)
	}}
	topics := source{behind: behind, period: first, oldest: oldest, read: func(period int, behind Position, want int) ([]found, bool, error) {
		return s.topicRows(ctx, k.App, follows, period, behind, want)
	}}
	for {
		a, err := mine.first(want())
		if err != nil {
			return false, err
		}
		b, err := topics.first(want())
		if err != nil || a == nil && b == nil {
			return err == nil, err
		}
		one, shown := next(a, b)
		if a != nil && a.Position == one.Position {
			mine.take()
		}
		if b != nil && b.Position == one.Position {
			topics.take()
		}
		one.Read = one.isRead(one.At, u)
		if shown && !each(one) {
			return false, nil
		}
	}
}

// ownReader reads rows of a user's own in a period, behind a position: about as many as are
// wanted. more = there may be others in the period.
type ownReader func(ctx context.Context, k Key, period int, behind Position, want int) (rows []found, more bool, err error)

// next is what comes next of the user's own rows and of topics' messages, of which one may
// be nil; shown is false for marks of what is not there. What was done with a topic's
// message is in a row of the user's, of the same place.
func next(own, topic *found) (one *found, shown bool) {
	switch {
	case topic == nil || own != nil && own.Before(topic.Position):
		return own, own.Type != ""
	case own == nil || topic.Before(own.Position):
		return topic, true
	case own.Type != "":
		return own, true
	}
	topic.read, topic.unread, topic.Shown = own.read, own.unread, own.Shown
	return topic, true
}

// found is an entry that was read, and its marks. One without a type was never written:
// there are only marks of it.
type found struct {
	Entry
	marked
}

// source reads rows in the order of an inbox, period by period.
type source struct {
	// read reads rows of a period behind a position, as many as wanted or more. more = there
	// may be others in the period, behind these.
	read           func(period int, behind Position, want int) (rows []found, more bool, err error)
	rows           []found // that were read, and not taken
	behind         Position
	period, oldest int
}

// first is the next row; nil = there are no more.
func (s *source) first(want int) (*found, error) {
	for len(s.rows) == 0 {
		if s.period < s.oldest {
			return nil, nil
		}
		rows, more, err := s.read(s.period, s.behind, want)
		if err != nil {
			return nil, err
		}
		if s.rows = rows; len(rows) > 0 {
			s.behind = rows[len(rows)-1].Position
		}
		if !more {
			s.period--
		}
	}
	return &s.rows[0], nil
}

func (s *source) take() { s.rows = s.rows[1:] }

// ownRows reads rows of a user, a chunk at most.
func (s *Store) ownRows(ctx context.Context, k Key, period int, behind Position, want int) (rows []found, more bool, err error) {
	want = min(want, chunk)
	var row entryRow
	err = s.tables.Query(ctx, selectPage, []any{k.User, k.App, period, behind.At, behind.ID, want}, row.dest(), func() {
		rows = append(rows, row.found())
		row = entryRow{} // its content belongs to the entry by now
	})
	if err != nil {
		return nil, false, fmt.Errorf("inbox: reading entries: %w", err)
	}
	return rows, len(rows) >= want, nil
}

// fill reads what is in the rows of topics' messages, and returns how many entries of the
// page are complete: all, or some more than have MaxBytes together.
func (s *Store) fill(ctx context.Context, app string, page []Entry) (read int, err error) {
	bytes := 0
	for read < len(page) && bytes <= MaxBytes {
		part := page[read:min(read+chunk, len(page))]
		errs := make([]error, len(part))
		var running sync.WaitGroup
		for i := range part {
			if e := &part[i]; e.Topic != "" {
				running.Go(func() { errs[i] = s.readMessage(ctx, app, e) })
			}
		}
		running.Wait()
		for i := range part {
			if errs[i] != nil {
				return 0, errs[i]
			}
			bytes += len(part[i].Content)
		}
		read += len(part)
	}
	return read, nil
}

// cut takes the last entry away if the page has too many bytes with it, and others.
func cut(page []Entry) []Entry {
	bytes := 0
	for i := range page {
		if bytes += len(page[i].Content); bytes > MaxBytes && i > 0 {
			return page[:i]
		}
	}
	return page
}

// checkPage is nil if a page may be asked for.
func checkPage(follows []Follow, limit int) error {
	if limit < 1 || limit > MaxPage {
		return fmt.Errorf("inbox: a page of %d, want 1 to %d", limit, MaxPage)
	}
	if len(follows) > MaxFollows {
		return fmt.Errorf("inbox: a page of %d topics, want %d at most", len(follows), MaxFollows)
	}
	return nil
}

// upTo reads how far an inbox is read as a whole.
func (s *Store) upTo(ctx context.Context, k Key) (u upTo, err error) {
	if err := s.tables.Query(ctx, selectUpTo, []any{k.User, k.App}, []any{&u.at, &u.set}, func() {}); err != nil {
		return upTo{}, fmt.Errorf("inbox: reading how far it is read: %w", err)
	}
	return u, nil
}

// entryRow is a row of inbox, or what is read of one of topic_messages. Columns that are
// null leave what was there.
type entryRow struct {
	at, expires, read, unread, shown time.Time
	id, entryType, lane, sender      string
	priority                         int8
	content                          []byte
	written                          int64 // in microseconds since 1970
}

func (r *entryRow) dest() []any {
	return append([]any{&r.at, &r.id}, append(r.said(), &r.read, &r.unread, &r.written, &r.shown)...)
}

// said are the columns that the message says.
func (r *entryRow) said() []any {
	return []any{&r.entryType, &r.lane, &r.sender, &r.priority, &r.content, &r.expires}
}

// put puts what the message says into an entry.
func (r *entryRow) put(e *Entry) {
	e.Type, e.Lane, e.Sender, e.Priority, e.Content, e.Expires = r.entryType, r.lane, r.sender, push.Priority(r.priority), r.content, timeOf(r.expires)
}

func (r *entryRow) found() found {
	f := found{Entry{Position: Position{r.at.UTC(), r.id}, Shown: r.shown.UTC()}, marked{time.UnixMicro(r.written), r.read, r.unread}}
	r.put(&f.Entry)
	return f
}
