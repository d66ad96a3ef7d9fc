package firsts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

func (s *Store) read(ctx context.Context) {
	var r request
	for {
		select {
		case <-s.asks:
		case <-ctx.Done():
			return
		}
		for looks := s.nextLooks(); len(looks) > 0; looks = s.nextLooks() {
			began := time.Now()
			err := s.find(ctx, &r, looks)
			if took := time.Since(began); err == nil && took > patience {
				err = fmt.Errorf("it took %v to answer", took.Round(time.Millisecond))
			}
			if err != nil {
				s.away.Store(true)
			}
			if s.tell(&s.reading, err); err != nil {
				s.pause(ctx, &r)
			}
			spaced(ctx, began, readEvery)
		}
	}
}

// nextLooks takes looks that wait: as many as one command may have, but one at least.
func (s *Store) nextLooks() []*look {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, names := 0, 0
	for n < len(s.looks) && (n == 0 || names+len(s.looks[n].names) <= most) {
		names += len(s.looks[n].names)
		n++
	}
	taken := s.looks[:n:n]
	if s.looks, s.names = s.looks[n:], s.names-names; len(s.looks) == 0 {
		s.looks = nil
	}
	return taken
}

// find asks Redis what looks want, and lets their callers go.
func (s *Store) find(ctx context.Context, r *request, looks []*look) error {
	r.reset()
	for _, l := range looks {
		r.name(s.prefix, l.names)
		defer func() { l.done <- struct{}{} }()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	values, err := s.get(ctx, r)
	if err != nil {
		s.counts.unasked.Add(int64(len(r.ends)))
		return fmt.Errorf("looking for repeats: %w", err)
	}
	i, found := 0, 0
	for _, l := range looks {
		for n := range l.found {
			if text, ok := values[i].(string); ok {
				l.found[n] = text
				found++
			}
			i++
		}
	}
	s.counts.found.Add(int64(found))
	s.counts.none.Add(int64(i - found))
	return nil
}

// get reads the keys of a request: with one command, or of a cluster with one for each, as no
// two of them need be in one place. What is not there is no string.
func (s *Store) get(ctx context.Context, r *request) ([]any, error) {
	keys := r.list()
	if !s.cluster {
		r.args = append(r.args[:0], "mget")
		for i := range keys {
			r.args = append(r.args, &keys[i]) // a pointer costs no allocation as any
		}
		cmd := redis.NewSliceCmd(ctx, r.args...)
		_ = s.client.Process(ctx, cmd) // it has its error
		values, err := cmd.Result()
		if err == nil && len(values) != len(keys) {
			err = fmt.Errorf("%d answers to %d keys", len(values), len(keys))
		}
		return values, err
	}
	pipe := s.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.Get(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	values := make([]any, len(keys))
	for i, cmd := range cmds {
		switch text, err := cmd.Result(); {
		case err == nil:
			values[i] = text
		case !errors.Is(err, redis.Nil) && !shards.Answered(err):
			return nil, err
		}
	}
	return values, nil
}

// pause asks Redis for nothing that is looked for until it answers in time to what it did not
// answer, or ctx ends: of a cluster a part may be away.
func (s *Store) pause(ctx context.Context, r *request) {
	for _, l := range s.dropLooks() {
		s.counts.unasked.Add(int64(len(l.names)))
		l.done <- struct{}{}
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if s.answers(ctx, r) {
			s.away.Store(false)
			s.tell(&s.reading, nil)
			return
		}
		timer.Reset(rest)
	}
}

// answers reports whether Redis answers in time.
func (s *Store) answers(ctx context.Context, r *request) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.get(ctx, r)
	return err == nil
}

func (s *Store) dropLooks() []*look {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.looks
	s.looks, s.names = nil, 0
	return dropped
}

// request is memory of what is asked of Redis at once.
type request struct {
	text []byte // of the keys
	ends []int
	keys []string
	args []any
}

func (r *request) reset() { r.text, r.ends = r.text[:0], r.ends[:0] }

// name adds the keys of names.
func (r *request) name(prefix string, names [][16]byte) {
	for i := range names {
		r.text = append(append(r.text, prefix...), names[i][:]...)
		r.ends = append(r.ends, len(r.text))
	}
}

// list is all keys that were added. It is valid until the next one.
func (r *request) list() []string {
	all, at := string(r.text), 0
	r.keys = r.keys[:0]
	for _, end := range r.ends {
		r.keys = append(r.keys, all[at:end])
		at = end
	}
	return r.keys
}
