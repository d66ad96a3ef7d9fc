package subscriptions

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// A partition is in the order of slices and users, so that a slice is a run of rows,
// whatever the count of buckets is, and nobody reads what he then throws away. The page
// begins behind the last user of the one before: a state of the server's own paging would
// not survive another driver or a change of the schema.
const (
	selectSlice = "SELECT user, mode, priority, since, left FROM subscriptions " +
		"WHERE topic = ? AND layout = ? AND bucket = ? AND slice = ? AND user > ? LIMIT ?"
	selectRun = "SELECT user, mode, priority, since, left FROM subscriptions " +
		"WHERE topic = ? AND layout = ? AND bucket = ? AND (slice, user) > (?, ?) AND (slice) <= (?) LIMIT ?"
	selectOfUser = "SELECT topic, app, security, mode, priority, since, left FROM subscriptions_by_user WHERE user = ? AND topic > ? LIMIT ?"
)

// mostBuckets is how many partitions one call of Run looks into: a large topic with ten
// subscribers has 1,024.
const mostBuckets = 64

// atOnce is how many of them it reads at once while few rows are in each.
const atOnce = 8

// Page are subscriptions of one slice of a topic behind a user, in the order of users, also
// of those who have left; fewer than limit = there are no more. after "" = from the first
// on. limit is 1 to MaxPage.
func (s *Store) Page(ctx context.Context, topic string, l Layout, slice int, after string, limit int) ([]Subscription, error) {
	if err := checkRun(l, slice, slice, limit); err != nil {
		return nil, err
	}
	return s.rows(ctx, limit, selectSlice, topic, l.Number, int16(l.Bucket(slice)), int16(slice), after, limit)
}

// Run is Page for several slices, first to last: for small topics, which have few users in
// each. next is where to go on, also if the page is not full; end says that there is
// nothing more. After the zero Position everything comes.
func (s *Store) Run(ctx context.Context, topic string, l Layout, first, last int, after Position, limit int) (list []Subscription, next Position, end bool, err error) {
	if err := checkRun(l, first, last, limit); err != nil {
		return nil, next, false, err
	}
	next = after
	if next.Slice < first {
		next = Position{Slice: first}
	}
	for looked, at := 0, 1; looked < mostBuckets && next.Slice <= last; {
		want := limit - len(list)
		spans := l.spans(next, last, min(at, mostBuckets-looked))
		rows, err := s.spans(ctx, topic, l, spans, want)
		if err != nil {
			return nil, next, false, err
		}
		if len(rows) >= want {
			list = append(list, rows[:want]...)
			user := list[limit-1].User
			return list, Position{Slice(user), user}, false, nil
		}
		list = append(list, rows...)
		next = Position{Slice: spans[len(spans)-1].last + 1}
		if looked += len(spans); len(rows) <= want/4 {
			at = min(2*at, atOnce)
		}
	}
	return list, next, next.Slice > last, nil
}

// span is what one query of Run reads: slices of one bucket.
type span struct {
	from Position // behind which
	last int      // slice
}

// spans are the next n, up to the slice last, or fewer when there are no more.
func (l Layout) spans(from Position, last, n int) (spans []span) {
	for len(spans) < n && from.Slice <= last {
		s := span{from, min(last, l.first(l.Bucket(from.Slice)+1)-1)}
		spans, from = append(spans, s), Position{Slice: s.last + 1}
	}
	return spans
}

// spans reads some at once, each up to limit. Of what comes after limit rows there may be
// gaps.
func (s *Store) spans(ctx context.Context, topic string, l Layout, spans []span, limit int) ([]Subscription, error) {
	pages := make([][]Subscription, len(spans))
	of, ctx := errgroup.WithContext(ctx)
	for i, at := range spans {
		of.Go(func() (err error) {
			pages[i], err = s.rows(ctx, limit, selectRun, topic, l.Number, int16(l.Bucket(at.last)), int16(at.from.Slice), at.from.User, int16(at.last), limit)
			return err
		})
	}
	err := of.Wait()
	return slices.Concat(pages...), err
}

func checkRun(l Layout, first, last, limit int) error {
	if l.Buckets < 1 || l.Buckets > Slices || first < 0 || last >= Slices {
		return fmt.Errorf("subscriptions: slices %d to %d in %d buckets, want 0 to %d in up to %d", first, last, l.Buckets, Slices-1, Slices)
	}
	return checkPage(limit)
}

func (s *Store) rows(ctx context.Context, limit int, statement string, values ...any) ([]Subscription, error) {
	var user string
	var row subscriptionRow
	list := make([]Subscription, 0, min(limit, 256))
	err := s.tables.Query(ctx, statement, values, append([]any{&user}, row.dest()...), func() {
		one := row.subscription()
		one.User = user
		if len(list) == cap(list) { // of a page that is not short, all in one step
			list = slices.Grow(list, limit-len(list))
		}
		list = append(list, one)
	})
	if err != nil {
		return nil, fmt.Errorf("subscriptions: reading subscribers: %w", err)
	}
	return list, nil
}

// OfUser are a user's subscriptions behind a topic, in the order of topics, also those that
// have ended; fewer than limit = there are no more. limit is 1 to MaxPage.
func (s *Store) OfUser(ctx context.Context, user, after string, limit int) ([]Membership, error) {
	if err := CheckUser(user); err != nil {
		return nil, err
	}
	if err := checkPage(limit); err != nil {
		return nil, err
	}
	var topic, app string
	var security int8
	var row subscriptionRow
	list := []Membership{}
	err := s.tables.Query(ctx, selectOfUser, []any{user, after, limit}, append([]any{&topic, &app, &security}, row.dest()...), func() {
		one := row.subscription()
		one.User = user
		list = append(list, Membership{topic, app, Security(security), one})
	})
	if err != nil {
		return nil, fmt.Errorf("subscriptions: reading a user's topics: %w", err)
	}
	return list, nil
}
