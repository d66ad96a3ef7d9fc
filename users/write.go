package users

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/state"
)

//go:embed shard.lua
var shardScriptText string

// shardWrite is one atomic write of a shard.
type shardWrite struct {
	shard int
	reset bool          // begin a new build: forget offsets, marker, open cases
	mark  bool          // set the epoch marker
	next  state.Version // of the shard after this write
	at    time.Time
	// offsets: per partition the next offset to apply; -1 = unchanged.
	offsets []int64
	keys    []string
	values  [][]byte        // of keys; nil = delete
	cases   map[string]bool // open cases to add (true) or take away
	unread  map[string]bool // parts in quarantine, the same way
}

// arguments are the keys and arguments of shard.lua.
func (w *shardWrite) arguments(expected state.Version) (keys []string, args []any) {
	keys = append([]string{shards.OffsetsKey(w.shard), shards.EpochKey(w.shard), state.OpenKey(w.shard), state.UnreadKey(w.shard)}, w.keys...)
	reset, marker := "0", ""
	if w.reset {
		reset = "1"
	}
	if w.mark {
		marker = state.FormatBuild(w.next.Build)
	}
	args = append(args, expected.String(), w.next.String(), reset, marker)

	fields := make([]any, 0, 2*len(w.offsets)+2)
	for p, offset := range w.offsets {
		if offset >= 0 {
			fields = append(fields, strconv.Itoa(p), offset)
		}
	}
	if !w.at.IsZero() {
		fields = append(fields, state.FieldAt, w.at.UnixMilli())
	}
	args = append(args, len(fields))
	args = append(args, fields...)

	args = append(args, len(w.values))
	for _, v := range w.values {
		args = append(args, v)
	}
	for _, set := range []map[string]bool{w.cases, w.unread} {
		for _, kind := range []bool{true, false} {
			args = appendMembers(args, set, kind)
		}
	}
	return keys, args
}

// appendMembers appends those of one kind, after their number.
func appendMembers(args []any, set map[string]bool, kind bool) []any {
	at := len(args)
	args = append(args, 0)
	for member, add := range set {
		if add == kind {
			args = append(args, member)
		}
	}
	args[at] = len(args) - at - 1
	return args
}

// write does all writes in one round trip, each fenced by the believed state of
// its shard, and updates that state. It returns the shards that another
// registry has written meanwhile: nothing was done there. After an error any of
// them may be done.
func (r *Registry) write(ctx context.Context, writes []*shardWrite) (fenced []int, err error) {
	pipe := r.client.Pipeline()
	cmds := make([]*redis.Cmd, len(writes))
	for i, w := range writes {
		st := &r.shards[w.shard]
		if !w.reset {
			w.next = st.Version.Next()
		}
		keys, args := w.arguments(st.Version)
		cmds[i] = pipe.EvalSha(ctx, r.script.Hash(), keys, args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	// A server that was restarted, or a node not asked before, needs the text.
	for i, w := range writes {
		if err := cmds[i].Err(); err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			keys, args := w.arguments(r.shards[w.shard].Version)
			cmds[i] = pipe.Eval(ctx, shardScriptText, keys, args...)
		}
	}
	_, _ = pipe.Exec(ctx)
	for i, w := range writes {
		done, err := cmds[i].Int()
		if err != nil {
			return nil, fmt.Errorf("writing shard %d: %w", w.shard, err)
		}
		if done == 0 {
			fenced = append(fenced, w.shard)
			continue
		}
		r.wrote(w)
	}
	return fenced, nil
}

// wrote applies a finished write to the believed state.
func (r *Registry) wrote(w *shardWrite) {
	st := &r.shards[w.shard]
	st.Version = w.next
	if w.reset {
		st.Applied = make([]int64, len(w.offsets))
		st.Ready, st.Open = false, false
	}
	for p, offset := range w.offsets {
		if offset >= 0 {
			st.Applied[p] = offset
		}
	}
	if !w.at.IsZero() {
		st.At = w.at
	}
	if w.mark {
		st.Ready, st.target = true, nil
	}
	for _, add := range w.cases {
		st.Open = st.Open || add
	}
}
