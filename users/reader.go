package users

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// UnbuiltError says that a user shard is not complete in Redis: it was wiped,
// or the registry has not finished building it. What is stored of its users
// means nothing until then. The error goes away by itself once a registry runs.
type UnbuiltError struct {
	Shard int // 0 to 255
}

func (e *UnbuiltError) Error() string {
	return "user shard " + strconv.Itoa(e.Shard) + " was wiped or is not built yet"
}

// Reader reads user records, a batch at a time. It is safe for concurrent use.
type Reader struct {
	client  redis.UniversalClient
	cluster bool // keys of different shards need commands of their own
	limiter atomic.Bool
	epochs  [shards.Users]string // key names
	scratch sync.Pool            // *readScratch
}

// NewReader makes a reader. With limiter set it reads the users' limiter
// states in the same commands. The client stays the caller's to close.
func NewReader(client redis.UniversalClient, limiter bool) *Reader {
	r := &Reader{client: client}
	r.cluster = shards.IsCluster(client)
	r.ReadLimiter(limiter)
	for s := range r.epochs {
		r.epochs[s] = shards.EpochKey(s)
	}
	r.scratch.New = func() any { return new(readScratch) }
	return r
}

// ReadLimiter says whether later calls of Fetch read the users' limiter states.
func (r *Reader) ReadLimiter(read bool) { r.limiter.Store(read) }

// readScratch is what one Fetch needs besides the answers themselves. Nothing reads
// the commands or their arguments any more when it ends.
type readScratch struct {
	groups  shards.Groups
	names   shards.Names
	limiter bool // read the limiter states too
	args    []any
	asked   []span // shards, in the order of cmds
	cmds    []mget
	size    int // of an answer for one owner in bytes: the average of the last batch and some more
	values  [][]byte
	answers []answer // by owner
	decoder record.Decoder
	unread  []int32  // owners whose record cannot be read
	missing []absent // shard by shard
}

// span is the shards from first to last as far as the batch touches them: those whose
// keys one MGET asks for.
type span struct {
	first, last  int
	owners, keys int // of all of them
}

func (s span) String() string {
	if s.first == s.last {
		return "shard " + strconv.Itoa(s.first)
	}
	return "shards " + strconv.Itoa(s.first) + " to " + strconv.Itoa(s.last)
}

// mostKeys is how many keys the MGET of several shards has at most; one shard's keys are
// never split, and may be more. While Redis answers a long command all others wait: 500 keys
// take it some 0.2 to 0.4 ms.
const mostKeys = 500

// mostExpected bounds the memory that is made before an answer comes: after a batch
// of one user whose record is large may come one of thousands.
const mostExpected = 1 << 10

// answer is what Redis has of an owner; nil = nothing.
type answer struct {
	record, limiter []byte
	build           uint64 // of the shard
}

// release forgets the answers, which are the users' now.
func (sc *readScratch) release() {
	clear(sc.cmds[:cap(sc.cmds)])
	clear(sc.values[:cap(sc.values)])
	clear(sc.answers)
	clear(sc.missing)
}

// Fetch reads the record of owners[i] into *out[i], all in one round trip: with one
// MGET per touched shard in a Redis Cluster, with one for several shards where Redis is a
// single server. An owner is a user id, or the device hash of a bare device. An owner
// without a record gets an empty User. An owner that occurs twice is read twice, by
// the same MGET, so both see the same state; the out[i] must be distinct.
//
// The slices of each User are reused. Strings, and User.Limiter, share the
// memory of the answers: they stay valid as long as they are kept, and each keeps
// the whole answer to its MGET alive. With several shards in it that may be some 100 KB,
// most of it the records of other owners of the batch.
//
// A record that cannot be read, and a key of another type in its place, gives an empty
// User with the mark push.RecordUnread, and the registry is told to build it anew. Owners
// without a record, and no others, cost another round trip for that.
//
// After an error the Users are half filled and mean nothing. It is an
// *UnbuiltError when a touched shard is not complete, wraps record.ErrVersion when its
// marker is a newer fleet's, or else is Redis's or ctx's: each is a reason to
// wait and retry.
func (r *Reader) Fetch(ctx context.Context, owners []string, out []*push.User) error {
	if len(owners) == 0 {
		return nil
	}
	sc := r.scratch.Get().(*readScratch)
	defer r.scratch.Put(sc)
	defer sc.release()
	sc.groups.Arrange(len(owners), shards.Users, func(i int) int {
		push.Prefetch(i, len(owners), func(i int) byte { return push.Ends(owners[i]) })
		return shards.UserShard(owners[i])
	})
	sc.cmds, sc.unread, sc.missing, sc.limiter = sc.cmds[:0], sc.unread[:0], sc.missing[:0], r.limiter.Load()
	sc.answers = slices.Grow(sc.answers[:0], len(owners))[:len(owners)]

	pipe := r.client.Pipeline()
	sc.cmds = slices.Grow(sc.cmds, shards.Users) // they stay where they are
	for of, args := range r.commands(sc, owners) {
		sc.cmds = sc.cmds[:len(sc.cmds)+1]
		cmd := &sc.cmds[len(sc.cmds)-1]
		cmd.ask(ctx, of.owners*sc.size, args)
		if err := pipe.Process(ctx, cmd); err != nil {
			return fmt.Errorf("reading users: %w", err)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("reading users: %w", err)
	}
	total := 0
	for i, of := range sc.asked {
		if err := r.share(ctx, sc, of, &sc.cmds[i]); err != nil {
			return fmt.Errorf("reading users: %w", err)
		}
		total += sc.cmds[i].written.Len()
	}
	sc.size = min(total/len(owners)*9/8, mostExpected)
	sc.fill(out)
	if len(sc.unread) > 0 {
		r.doubt(ctx, sc.unread, owners)
	}
	if len(sc.missing) > 0 {
		if err := r.lookForOtherTypes(ctx, sc.missing, owners, out); err != nil {
			return fmt.Errorf("reading users: %w", err)
		}
	}
	return nil
}

// doubt tells the registry about records that cannot be read. If that fails,
// the next reader of them does.
func (r *Reader) doubt(ctx context.Context, unread []int32, owners []string) {
	pipe := r.client.Pipeline()
	for _, i := range unread {
		pipe.SAdd(ctx, state.OpenKey(shards.UserShard(owners[i])), record.Doubted+owners[i])
	}
	_, _ = pipe.Exec(ctx)
}

// commands yields each MGET and the shards it asks for: of each of these the epoch
// marker, then the records, then the limiter states.
func (r *Reader) commands(sc *readScratch, owners []string) func(func(span, []any) bool) {
	r.divide(sc)
	sc.names.Reset()
	for s, of := range sc.groups.All() {
		for _, i := range of {
			sc.names.User(s, owners[i])
		}
		if sc.limiter {
			for _, i := range of {
				sc.names.Limiter(s, owners[i])
			}
		}
	}
	names := sc.names.List()
	total := 0
	for _, asked := range sc.asked {
		total += 1 + asked.keys
	}
	args := slices.Grow(sc.args[:0], total)
	sc.args = args
	return func(yield func(span, []any) bool) {
		next := 0
		for _, asked := range sc.asked {
			first := len(args)
			args = append(args, "mget")
			for s := range sc.shards(asked) {
				args = append(args, &r.epochs[s])
				for range sc.keys(len(sc.groups.Of(s))) - 1 {
					args = append(args, &names[next]) // a pointer costs no allocation as any
					next++
				}
			}
			if !yield(asked, args[first:len(args):len(args)]) {
				return
			}
		}
	}
}

// divide says which shards are asked for by one command.
func (r *Reader) divide(sc *readScratch) {
	sc.asked = sc.asked[:0]
	for s, of := range sc.groups.All() {
		keys := sc.keys(len(of))
		if n := len(sc.asked); n == 0 || r.cluster || sc.asked[n-1].keys+keys > mostKeys {
			sc.asked = append(sc.asked, span{first: s})
		}
		asked := &sc.asked[len(sc.asked)-1]
		asked.last = s
		asked.owners += len(of)
		asked.keys += keys
	}
}

// keys is how many a shard with so many owners is asked for.
func (sc *readScratch) keys(owners int) int {
	if sc.limiter {
		return 1 + 2*owners
	}
	return 1 + owners
}

// shards walks those of a span that the batch touches.
func (sc *readScratch) shards(asked span) iter.Seq2[int, []int32] {
	return func(yield func(int, []int32) bool) {
		for s := asked.first; s <= asked.last; s++ {
			if of := sc.groups.Of(s); len(of) > 0 && !yield(s, of) {
				return
			}
		}
	}
}

// share gives one command's answer to the owners that asked for it.
func (r *Reader) share(ctx context.Context, sc *readScratch, asked span, cmd *mget) error {
	values, err := r.values(ctx, sc, cmd)
	if err != nil {
		return fmt.Errorf("user %v: %w", asked, err)
	}
	keys := cmd.Args()[1:]
	for s, of := range sc.shards(asked) {
		n := sc.keys(len(of))
		if err := sc.shareShard(s, of, keys[:n], values[:n]); err != nil {
			return err
		}
		keys, values = keys[n:], values[n:]
	}
	return nil
}

// shareShard gives the values of one shard's keys to its owners.
func (sc *readScratch) shareShard(s int, of []int32, keys []any, values [][]byte) error {
	marker := values[0]
	if marker == nil {
		return &UnbuiltError{Shard: s}
	}
	build, err := state.ParseBuild(string(marker))
	if err != nil {
		return fmt.Errorf("user shard %d: %w", s, err)
	}
	for j, i := range of {
		a := &sc.answers[i]
		a.record, a.build = values[1+j], build
		if sc.limiter {
			a.limiter = values[1+len(of)+j]
		}
		if a.record == nil {
			sc.missing = append(sc.missing, absent{i, s, keys[1+j]})
		}
	}
	return nil
}

// fill decodes the answers into the Users. It goes by them and not by shards: they are
// larger than what they are read from, and mostly lie one after the other.
func (sc *readScratch) fill(out []*push.User) {
	for i := range push.Prefetching(len(out), func(i int) byte { return push.Ends(sc.answers[i].record) + byte(len(out[i].Limiter)) }) {
		u, a := out[i], &sc.answers[i]
		u.Limiter = a.limiter
		if err := sc.decoder.Decode(a.record, a.build, u); err != nil {
			u.Quarantine = push.RecordUnread
			sc.unread = append(sc.unread, int32(i))
		}
	}
}

// Stored is a user as the registry keeps it.
type Stored struct {
	push.User
	// Dropped is how many devices were left out because the user had too many,
	// since the shard was built; the latest of them was registered DroppedUpTo.
	Dropped     int
	DroppedUpTo time.Time
}

// Stored reads one user; a user without a record is returned empty. Its errors are those of
// Fetch.
func (r *Reader) Stored(ctx context.Context, user string) (Stored, error) {
	s := shards.UserShard(user)
	key := shards.UserKey(s, user)
	values, err := r.client.MGet(ctx, r.epochs[s], key).Result()
	if err == nil && len(values) != 2 {
		err = errReply
	}
	if err != nil {
		return Stored{}, fmt.Errorf("reading user shard %d: %w", s, err)
	}
	marker := bytesOf(values[0])
	if marker == nil {
		return Stored{}, fmt.Errorf("reading users: %w", &UnbuiltError{Shard: s})
	}
	build, err := state.ParseBuild(string(marker))
	if err != nil {
		return Stored{}, fmt.Errorf("reading user shard %d: %w", s, err)
	}
	var u record.User
	if u.Decode(bytesOf(values[1]), build) != nil {
		u.Quarantine = push.RecordUnread
		r.doubt(ctx, []int32{0}, []string{user})
	}
	if values[1] == nil {
		if err := r.lookForOtherTypes(ctx, []absent{{0, s, key}}, []string{user}, []*push.User{&u.User}); err != nil {
			return Stored{}, fmt.Errorf("reading user shard %d: %w", s, err)
		}
	}
	dropped, upTo := u.Dropped()
	return Stored{User: u.User, Dropped: dropped, DroppedUpTo: upTo}, nil
}

// values returns the answer to cmd. A raw command takes an error for an
// answer, so the library did not follow a redirect of the cluster: ask once
// more with a command that does.
func (r *Reader) values(ctx context.Context, sc *readScratch, cmd *mget) ([][]byte, error) {
	raw, err := cmd.answer()
	if err != nil {
		return nil, err
	}
	want := len(cmd.Args()) - 1
	if len(raw) > 0 && raw[0] == '-' {
		again := redis.NewSliceCmd(ctx, cmd.Args()...)
		if err := r.client.Process(ctx, again); err != nil {
			return nil, err
		}
		sc.values = sc.values[:0]
		for _, v := range again.Val() {
			sc.values = append(sc.values, bytesOf(v))
		}
	} else if sc.values, err = bulks(raw, sc.values[:0]); err != nil {
		return nil, err
	}
	if len(sc.values) != want {
		return nil, errReply
	}
	return sc.values, nil
}

func bytesOf(v any) []byte {
	if s, ok := v.(string); ok {
		return []byte(s)
	}
	return nil
}

// IsUnbuilt reports whether err comes from a shard that is not complete, and
// which.
func IsUnbuilt(err error) (shard int, ok bool) {
	var e *UnbuiltError
	if errors.As(err, &e) {
		return e.Shard, true
	}
	return 0, false
}
