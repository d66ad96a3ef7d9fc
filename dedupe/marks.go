package dedupe

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// marks is one command about the marks of the filters that asks[from:to] ask.
type marks struct {
	from, to int
	cmd      *redis.Cmd
}

// askMarks makes the commands about the marks of the filters that are asked: one for all,
// or one for each shard.
func (s *scratch) askMarks(ctx context.Context, each bool) {
	s.marks = s.marks[:0]
	for from, to := 0, 0; from < len(s.asks); from = to {
		start := len(s.args)
		s.args = append(s.args, "EXISTS")
		for to = from; to < len(s.asks) && (!each || s.asks[to].k == s.asks[from].k); to++ {
			s.args = append(s.args, &s.asks[to].w.fulls[s.asks[to].k])
		}
		s.marks = append(s.marks, marks{from, to, redis.NewCmd(ctx, s.args[start:len(s.args):len(s.args)]...)})
	}
}

// readMarks notes which shards have a filter that is marked. One is enough, whatever its
// window: what it refused may be in no other. It is false where a command about several
// shards has found a mark: then each must be asked about.
func (s *scratch) readMarks() (whose bool, err error) {
	whose = true
	for _, m := range s.marks {
		first, last := &s.asks[m.from], &s.asks[m.to-1]
		n, err := m.cmd.Int()
		switch {
		case err != nil:
			return false, fmt.Errorf("reading whether the Bloom filter %s is full: %w", first.w.keys[first.k], err)
		case n <= 0:
		case first.k == last.k:
			s.full[first.k] = true
		default:
			whose = false
		}
	}
	return whose, nil
}

// askAnew makes all commands again, with one about the marks of each shard. A filter is full
// for hours, so that this is a second round trip of many calls, but none of most days. The
// filters are asked again as well: a mark may be gone by now, and their earlier answers
// would then be believed although it was there.
func (s *scratch) askAnew(ctx context.Context) {
	for i := range s.asks {
		s.asks[i].cmd = redis.NewCmd(ctx, s.asks[i].cmd.Args()...)
	}
	s.askMarks(ctx, true)
}
