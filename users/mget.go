package users

import (
	"bytes"
	"context"

	"github.com/redis/go-redis/v9"
)

// mget is an MGET whose answer is kept as it came, in memory that is made once: the
// library's typed answer takes two allocations a value, and its raw one grows from
// nothing.
type mget struct {
	*redis.RawWriteToCmd
	written bytes.Buffer
}

// ask makes the command. size is how long the answer is expected to be, in bytes.
func (m *mget) ask(ctx context.Context, size int, args []any) {
	m.RawWriteToCmd = redis.NewRawWriteToCmd(ctx, &m.written, args...)
	m.written = bytes.Buffer{} // what it held is somebody's
	m.written.Grow(size + bytes.MinRead)
}

// NoRetry implements redis.Cmder. The library tries no command again that streams its
// answer, because of what is written already. This one may be: see answer.
func (*mget) NoRetry() bool { return false }

// answer is the answer to the last try: it ends what was written, and the library
// says how long it is.
func (m *mget) answer() ([]byte, error) {
	n, err := m.Result()
	if err != nil {
		return nil, err
	}
	all := m.written.Bytes()
	return all[len(all)-int(n):], nil
}
