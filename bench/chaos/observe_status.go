//go:build unix

package chaos

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
)

// statusReader reads the status table with a client and statements of its own.
// After an error it begins anew with the next question.
type statusReader struct {
	addr     string
	keyspace string

	mu      sync.Mutex
	session *gocql.Session // guarded by mu; nil until it is asked, and after an error
	tried   time.Time      // guarded by mu; when the last session could not be made
}

// A store that is away must not keep the observers from what else there is to
// see, so these are short, and it is not asked all the time.
const (
	statusTimeout = 2 * time.Second
	statusPause   = time.Second
)

func (r *statusReader) open() (*gocql.Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil {
		return r.session, nil
	}
	if time.Since(r.tried) < statusPause {
		return nil, errors.New("status reader: it was away just now")
	}
	c := gocql.NewCluster(r.addr)
	if _, port, err := net.SplitHostPort(r.addr); err == nil {
		c.Port, _ = strconv.Atoi(port)
	}
	c.Keyspace, c.ProtoVersion, c.Consistency = r.keyspace, 4, gocql.Quorum
	c.Timeout, c.ConnectTimeout, c.NumConns = statusTimeout, statusTimeout, 2
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: 100 * time.Millisecond}
	c.Logger = log.New(io.Discard, "", 0)
	s, err := c.CreateSession()
	if err != nil {
		r.tried = time.Now()
		return nil, fmt.Errorf("status reader: %w", err)
	}
	r.session = s
	return s, nil
}

// failed gives a session up.
func (r *statusReader) failed(s *gocql.Session) {
	r.mu.Lock()
	if r.session == s {
		r.session, r.tried = nil, time.Now()
	}
	r.mu.Unlock()
	s.Close()
}

func (r *statusReader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil {
		r.session.Close()
		r.session = nil
	}
}

const columns = `SELECT id, device, step, state, at, reason, details FROM notification_status`

// scan reads the rows of an iterator.
func scan(it *gocql.Iter, each func(invariants.Row)) error {
	var row invariants.Row
	var step int16
	var state int8
	for {
		details := map[string]any{} // nil in a row of columns
		if !it.Scan(&row.ID, &row.Device, &step, &state, &row.At, &row.Reason, &details) {
			break
		}
		// In both formats where the setting was changed between two writes.
		if at, _ := details["at"].(time.Time); !at.IsZero() && !at.Before(row.At) {
			row.At = at
			row.Reason, _ = details["reason"].(string)
		}
		row.Step, row.State = int(step), invariants.State(state)
		each(row)
	}
	return it.Close()
}

// of reads the rows of some ids, many of a bucket at once.
func (r *statusReader) of(ctx context.Context, ids []string) (map[string][]invariants.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	s, err := r.open()
	if err != nil {
		return nil, err
	}
	const most = 100 // ids in one statement
	buckets := map[int64][]string{}
	for _, id := range ids {
		buckets[bucket(id)] = append(buckets[bucket(id)], id)
	}
	rows := map[string][]invariants.Row{}
	var mu sync.Mutex
	var first error
	var asking sync.WaitGroup
	places := make(chan struct{}, 8)
	for b, list := range buckets {
		for len(list) > 0 {
			some := list[:min(most, len(list))]
			list = list[len(some):]
			places <- struct{}{}
			asking.Go(func() {
				defer func() { <-places }()
				it := s.Query(columns+` WHERE bucket = ? AND id IN ?`, b, some).WithContext(ctx).Iter()
				err := scan(it, func(row invariants.Row) {
					mu.Lock()
					defer mu.Unlock()
					rows[row.ID] = append(rows[row.ID], row)
				})
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			})
		}
	}
	asking.Wait()
	if first != nil {
		r.failed(s)
		return nil, fmt.Errorf("reading status rows: %w", first)
	}
	return rows, nil
}

// all reads the whole table, from its start again where that fails, until ctx
// ends.
func (r *statusReader) all(ctx context.Context) ([]invariants.Row, error) {
	for {
		rows, err := r.table(ctx)
		if err == nil || ctx.Err() != nil {
			return rows, err
		}
		hold(ctx, statusPause)
	}
}

func (r *statusReader) table(ctx context.Context) (rows []invariants.Row, err error) {
	s, err := r.open()
	if err != nil {
		return nil, err
	}
	it := s.Query(columns).PageSize(2000).WithContext(ctx).Iter()
	if err := scan(it, func(row invariants.Row) { rows = append(rows, row) }); err != nil {
		r.failed(s)
		return nil, fmt.Errorf("reading the status table: %w", err)
	}
	return rows, nil
}

// bucket is where an id's rows stand, by the documentation of the schema: for a
// UUIDv7 the start of its ten seconds and one of sixteen hash shards, for any
// other id its hash.
func bucket(id string) int64 {
	hash := xxhash.Sum64String(id)
	plain, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	dashes := len(id) == 36 && id[8] == '-' && id[13] == '-' && id[18] == '-' && id[23] == '-'
	if err != nil || !dashes || len(plain) != 16 || plain[6]>>4 != 7 || plain[8]>>6 != 2 {
		return int64(hash | 1<<63)
	}
	millis := int64(0)
	for _, b := range plain[:6] {
		millis = millis<<8 | int64(b)
	}
	return millis/10_000*10<<16 | int64(hash%16)
}
