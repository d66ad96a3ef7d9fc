package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The client's hooks learn when an answer came but not what it says, and its callbacks
// learn of an expulsion only after work in flight. A lease must end at once. So the
// connections are watched: the send time of each group request, and the error code of
// each answer. Nothing else is read.

// request is a group request in flight.
type request struct {
	conn        *watchedConn
	correlation int32
	key         kmsg.Key
	version     int16
	member      string // the member id in it
	leads       bool   // it is a SyncGroup with the group's assignments
}

// throttledSince has the group requests, each with the version since which its answer
// begins with a throttle time (Kafka's protocol guide).
var throttledSince = map[kmsg.Key]int16{kmsg.JoinGroup: 2, kmsg.Heartbeat: 1, kmsg.SyncGroup: 1, kmsg.ConsumerGroupHeartbeat: 0}

// A request begins with size, key, version and correlation id; an answer with size and
// correlation id.
const (
	requestHeader = 12
	answerHeader  = 8
	// answerPrefix is how much of an answer's body is read: the tags of its header, the
	// throttle time and the error code.
	answerPrefix = 1 + 4 + 2
)

// errorCodeOf returns the error code at the start of the answer's body. ok is false if
// it cannot be read.
func (r request) errorCodeOf(body []byte) (code int16, ok bool) {
	at := 0
	if answer := r.key.Response(); answer != nil {
		answer.SetVersion(r.version)
		if answer.IsFlexible() {
			if len(body) == 0 || body[0] != 0 { // no broker sends tags
				return 0, false
			}
			at++
		}
	}
	if r.version >= throttledSince[r.key] {
		at += 4
	}
	if len(body) < at+2 {
		return 0, false
	}
	return int16(binary.BigEndian.Uint16(body[at:])), true
}

// observed returns a dialFunc whose connections report group requests to m.
func observed(dial dialFunc, m *membership) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn, member: m, pending: make(map[int32]sentRequest)}, nil
	}
}

type sentRequest struct {
	request
	at time.Time
}

// watchedConn is a connection to a broker. As with any net.Conn, one goroutine may read
// while another writes and a third one closes.
type watchedConn struct {
	net.Conn
	member *membership

	mu      sync.Mutex
	pending map[int32]sentRequest // by correlation id

	// These concern the answer that is being read; only the reader uses them.
	prefix []byte // its first bytes, as far as they are needed
	want   int    // how many are needed; 0 = not known yet
	skip   int    // how many of its other bytes are still to be skipped
}

// Write writes b, which is one whole request: the client writes each in one call.
func (c *watchedConn) Write(b []byte) (int, error) {
	r, ok := c.requestOf(b)
	if ok {
		now := time.Now()
		c.mu.Lock()
		c.pending[r.correlation] = sentRequest{r, now}
		c.mu.Unlock()
		c.member.sent(r)
	}
	n, err := c.Conn.Write(b)
	if err != nil && ok {
		c.take(r.correlation)
		c.member.lost(r)
	}
	return n, err
}

func (c *watchedConn) requestOf(b []byte) (request, bool) {
	if len(b) < requestHeader || int(binary.BigEndian.Uint32(b)) != len(b)-4 {
		return request{}, false
	}
	key := kmsg.Key(binary.BigEndian.Uint16(b[4:]))
	r := request{conn: c, key: key, version: int16(binary.BigEndian.Uint16(b[6:])), correlation: int32(binary.BigEndian.Uint32(b[8:]))}
	if _, group := throttledSince[key]; !group {
		return r, false
	}
	r.read(b[requestHeader:])
	return r, true
}

// read takes over whose request it is, if that can be read; b begins with the client id.
func (r *request) read(b []byte) {
	reader := kbin.Reader{Src: b}
	reader.NullableString() // the client id
	req := r.key.Request()
	req.SetVersion(r.version)
	if req.IsFlexible() && reader.Uvarint() != 0 { // the client sends no tags
		return
	}
	if !reader.Ok() || req.ReadFrom(reader.Src) != nil {
		return
	}
	switch req := req.(type) {
	case *kmsg.JoinGroupRequest:
		r.member = req.MemberID
	case *kmsg.SyncGroupRequest:
		r.member, r.leads = req.MemberID, len(req.GroupAssignment) > 0
	case *kmsg.HeartbeatRequest:
		r.member = req.MemberID
	case *kmsg.ConsumerGroupHeartbeatRequest:
		r.member = req.MemberID
	}
}

// take removes and returns a pending request.
func (c *watchedConn) take(correlation int32) (sentRequest, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.pending[correlation]
	delete(c.pending, correlation)
	return r, ok
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.observe(b[:n])
	return n, err
}

// observe follows the answers in the bytes that were read, in pieces of any size.
func (c *watchedConn) observe(b []byte) {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip, b = c.skip-n, b[n:]
			continue
		}
		want := max(c.want, answerHeader)
		n := min(want-len(c.prefix), len(b))
		c.prefix, b = append(c.prefix, b[:n]...), b[n:]
		switch {
		case len(c.prefix) < want:
		case c.want == 0 && c.awaits(c.correlation()):
			c.want = answerHeader + min(answerPrefix, max(0, c.size()-4))
		default:
			c.answered()
		}
	}
}

// size returns the answer's length without the size field.
func (c *watchedConn) size() int { return int(int32(binary.BigEndian.Uint32(c.prefix))) }

func (c *watchedConn) correlation() int32 { return int32(binary.BigEndian.Uint32(c.prefix[4:])) }

// awaits reports whether the correlation id is that of a pending group request.
func (c *watchedConn) awaits(correlation int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pending[correlation]
	return ok
}

// answered reports the answer whose first bytes have been read.
func (c *watchedConn) answered() {
	if r, ok := c.take(c.correlation()); ok {
		if code, ok := r.errorCodeOf(c.prefix[answerHeader:]); ok {
			c.member.answer(r.request, r.at, code)
		} else {
			c.member.lost(r.request)
		}
	}
	c.skip = max(0, c.size()+4-len(c.prefix))
	c.prefix, c.want = c.prefix[:0], 0
}

// Close closes the connection. Pending requests get no answer.
func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	pending := c.pending
	c.pending = make(map[int32]sentRequest)
	c.mu.Unlock()
	for _, r := range pending {
		c.member.lost(r.request)
	}
	return err
}
