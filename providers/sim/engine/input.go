package engine

import (
	"bufio"
	"encoding/binary"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// readSize is how much is read at a time: more than a frame, and so many
// requests that what a read and a write cost hardly counts, while the first of
// their answers is not held up by the last.
const readSize = 64 << 10

// readAhead is a socket that is read in big pieces: TLS asks for one record at
// a time. Only the connection's reader reads.
type readAhead struct {
	net.Conn
	in  *bufio.Reader
	dry func() // called before the operating system is asked for more
}

func newReadAhead(c net.Conn) *readAhead {
	return &readAhead{c, bufio.NewReaderSize(c, readSize), func() {}}
}

// Read implements net.Conn.
func (r *readAhead) Read(b []byte) (int, error) {
	if r.in.Buffered() == 0 {
		r.dry()
	}
	return r.in.Read(b)
}

// openingTime is how long a client without ALPN may take to show what it
// speaks.
const openingTime = 30 * time.Second

// opening reads what a client that negotiated nothing says first, until that is
// HTTP/2's preface or cannot become it: Apple takes such clients, and Pushy is
// one. It returns what it read.
func opening(c net.Conn) (version string, first []byte, err error) {
	if err := c.SetReadDeadline(time.Now().Add(openingTime)); err != nil {
		return "", nil, err
	}
	first = make([]byte, 0, len(http2.ClientPreface))
	for strings.HasPrefix(http2.ClientPreface, string(first)) {
		if len(first) == len(http2.ClientPreface) {
			version = http2.NextProtoTLS
			break
		}
		n, err := c.Read(first[len(first):cap(first)])
		if first = first[:len(first)+n]; n == 0 && err != nil {
			return "", nil, err
		}
	}
	return version, first, c.SetReadDeadline(time.Time{})
}

// read takes frames until the connection ends.
func (c *Conn) read() error {
	if err := c.await(len(http2.ClientPreface)); err != nil {
		return err
	}
	if string(c.in[:len(http2.ClientPreface)]) != http2.ClientPreface {
		return broken("no preface of HTTP/2")
	}
	c.from = len(http2.ClientPreface)
	for {
		if c.stalled.Load() {
			if !c.stand() {
				return net.ErrClosed // what has been read is lost
			}
			c.came = time.Time{} // what has been read comes now
		}
		if err := c.await(headerSize); err != nil {
			return err
		}
		h := c.in[c.from:]
		f := frame{
			kind: http2.FrameType(h[3]), flags: http2.Flags(h[4]), stream: binary.BigEndian.Uint32(h[5:]) & maxWindow,
		}
		length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		if length > maxFrame {
			return errPeer{http2.ErrCodeFrameSize, "a frame longer than MAX_FRAME_SIZE"}
		}
		if err := c.await(headerSize + length); err != nil {
			return err
		}
		f.payload = c.in[c.from+headerSize:][:length]
		if err := c.frame(&f); err != nil {
			return err
		}
		c.from += headerSize + length
	}
}

// await reads until n bytes are there to be looked at, at c.from. It is the
// only one that moves what was read.
func (c *Conn) await(n int) error {
	for c.to-c.from < n {
		c.to = copy(c.in, c.in[c.from:c.to])
		c.from, c.came = 0, time.Time{}
		got, err := c.conn.Read(c.in[c.to:])
		if c.to += got; got == 0 && err != nil {
			return err
		}
	}
	return nil
}

// arrived is when the present request came, or a little later; came is the same
// by the real clock. They are asked once for all requests that came together.
func (c *Conn) arrived() time.Time {
	if c.came.IsZero() {
		c.came, c.clock = time.Now(), c.now()
	}
	return c.clock
}
