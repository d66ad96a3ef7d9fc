package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// filters are the Bloom filters of a server. A filter's key is an ordinary
// string key of miniredis that names the filter by a serial number. So
// expiry, DEL, FLUSHALL, EXISTS and the like work on filters, although
// miniredis knows nothing of them; a filter whose key is gone is garbage and
// is swept when filters are made.
type filters struct {
	mu     sync.Mutex
	serial int
	live   map[string]*entry // by marker
}

type entry struct {
	key string
	*bloom
}

// markerPrefix starts the value of a key that is a filter.
const markerPrefix = "\x00bloom:"

var errWrongType = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")

// sweepEvery is after how many new filters garbage is looked for.
const sweepEvery = 64

// get finds the filter of a key; nil when there is no such key, errWrongType
// when it is no filter.
//
// The key is asked for by a command on the caller's connection and not by a
// method of miniredis: inside a script its lock is already held, and only the
// connection knows.
func (f *filters) get(srv *server.Server, c *server.Peer, key string) (*bloom, error) {
	reply, err := ask(srv, c, "GET", key)
	if err != nil || reply == nil {
		return nil, err
	}
	marker, _ := reply.(string)
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.live[marker]
	if e == nil {
		return nil, errWrongType
	}
	return e.bloom, nil
}

// create makes the filter of a key; false when the key exists.
func (f *filters) create(srv *server.Server, c *server.Peer, key string, b *bloom) (bool, error) {
	f.mu.Lock()
	f.serial++
	marker := markerPrefix + strconv.Itoa(f.serial)
	if f.live == nil {
		f.live = map[string]*entry{}
	}
	f.live[marker] = &entry{key: key, bloom: b}
	sweep := f.serial%sweepEvery == 0
	f.mu.Unlock()

	reply, err := ask(srv, c, "SET", key, marker, "NX")
	if err != nil || reply == nil {
		f.mu.Lock()
		delete(f.live, marker)
		f.mu.Unlock()
		return false, err
	}
	if sweep {
		f.sweepOver(func(key string) (string, bool) {
			reply, err := ask(srv, c, "GET", key)
			marker, _ := reply.(string)
			return marker, err == nil
		})
	}
	return true, nil
}

// sweep drops the filters whose keys are gone.
func (f *filters) sweep(m *miniredis.Miniredis) {
	f.sweepOver(func(key string) (string, bool) {
		marker, err := m.Get(key)
		return marker, err == nil || err == miniredis.ErrKeyNotFound
	})
}

// sweepOver asks value without holding the lock, which would nest with that of
// miniredis.
func (f *filters) sweepOver(value func(key string) (marker string, ok bool)) {
	f.mu.Lock()
	keys := make(map[string]string, len(f.live))
	for marker, e := range f.live {
		keys[marker] = e.key
	}
	f.mu.Unlock()
	for marker, key := range keys {
		if now, ok := value(key); ok && now != marker {
			f.mu.Lock()
			delete(f.live, marker)
			f.mu.Unlock()
		}
	}
}

// ask runs an ordinary command with the rights and state of c's connection.
// The answer is a string, an int, or nil for none.
func ask(srv *server.Server, c *server.Peer, args ...string) (any, error) {
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	peer := server.NewPeer(w)
	peer.Ctx = c.Ctx
	srv.Dispatch(peer, args)
	if err := w.Flush(); err != nil {
		return nil, err
	}
	line, rest, _ := strings.Cut(buf.String(), "\r\n")
	if line == "" {
		return nil, fmt.Errorf("ERR no answer to %s", args[0])
	}
	switch line[0] {
	case '-':
		if line[1:] == errWrongType.Error() {
			return nil, errWrongType
		}
		return nil, errors.New(line[1:])
	case '$':
		n, err := strconv.Atoi(line[1:])
		if err != nil || n > len(rest) {
			return nil, fmt.Errorf("ERR unexpected answer to %s", args[0])
		}
		if n < 0 {
			return nil, nil
		}
		return rest[:n], nil
	case '+':
		if line == "+QUEUED" {
			return nil, errors.New("ERR BF commands inside MULTI are not supported by the embedded server")
		}
		return line[1:], nil
	case '_':
		return nil, nil
	}
	return nil, fmt.Errorf("ERR unexpected answer to %s", args[0])
}
