package firsts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// values are some that are to be written.
type values struct {
	names [][16]byte
	ends  []int // of each, in text
	text  []byte
}

func (v *values) reset() { v.names, v.ends, v.text = v.names[:0], v.ends[:0], v.text[:0] }

func (s *Store) write(ctx context.Context) {
	w := writer{expiry: s.o.Kept.Milliseconds()}
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaving, cancel) })()
	for ctx.Err() == nil {
		select {
		case <-s.writes:
		case <-ctx.Done():
		}
		began := time.Now()
		s.writeAll(writing, &w)
		spaced(ctx, began, writeEvery)
	}
	s.writeAll(writing, &w)
}

func (s *Store) writeAll(ctx context.Context, w *writer) {
	for s.takeValues(&w.values) {
		for w.first = 0; w.first < len(w.values.names); w.first += most {
			s.tell(&s.writing, s.set(ctx, w))
		}
	}
}

// takeValues takes all that wait, in exchange for memory; false = there are none.
func (s *Store) takeValues(v *values) bool {
	v.reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, *v = *v, s.values
	return len(v.names) > 0
}

// writer is memory of the writing of values.
type writer struct {
	values values
	first  int // of those that are written with one command
	expiry any // in ms
	keys   request
	texts  []string
	cmds   []*redis.StatusCmd
}

// set writes some of the values, where their keys have none.
func (s *Store) set(ctx context.Context, w *writer) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	w.fill(s.prefix)
	pipe := s.client.Pipeline()
	args := slices.Grow(w.keys.args[:0], 6*len(w.texts))
	w.cmds = w.cmds[:0]
	for i, keys := 0, w.keys.list(); i < len(keys); i++ {
		args = append(args, "set", &keys[i], &w.texts[i], "px", w.expiry, "nx")
		cmd := redis.NewStatusCmd(ctx, args[6*i:6*i+6:6*i+6]...)
		w.cmds = append(w.cmds, cmd)
		_ = pipe.Process(ctx, cmd) // which only queues it
	}
	w.keys.args = args
	_, _ = pipe.Exec(ctx) // each has its own error
	var failed error
	kept := 0
	for _, cmd := range w.cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			failed = fmt.Errorf("keeping what was accepted: %w", err)
		} else {
			kept++
		}
	}
	s.counts.kept.Add(int64(kept))
	s.counts.lost.Add(int64(len(w.cmds) - kept))
	clear(w.cmds)
	return failed
}

// fill takes the values from the first one on, as many as a command has.
func (w *writer) fill(prefix string) {
	v := &w.values
	end := min(w.first+most, len(v.names))
	w.keys.reset()
	w.keys.name(prefix, v.names[w.first:end])
	at := 0
	if w.first > 0 {
		at = v.ends[w.first-1]
	}
	all, begin := string(v.text[at:v.ends[end-1]]), at
	w.texts = w.texts[:0]
	for _, end := range v.ends[w.first:end] {
		w.texts = append(w.texts, all[at-begin:end-begin])
		at = end
	}
}
