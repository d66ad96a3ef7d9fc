// Package wiretest is a client of HTTP/2 on the level of frames, for tests of
// servers: it can send what no client should, and sees every frame.
package wiretest

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Liveness ends a wait that hangs. It is no expectation: the machine may be
// busy with something else.
const Liveness = time.Minute

// Client is one connection. What it writes gathers in Out until Flush.
type Client struct {
	*http2.Framer
	T    testing.TB
	Conn net.Conn
	Out  bytes.Buffer
	ID   uint32   // of the next stream
	Head []string // of Open and Push; each is "name=value"

	block bytes.Buffer
	enc   *hpack.Encoder
}

// New begins a connection with the preface and settings, which are not sent
// yet.
func New(t testing.TB, conn net.Conn, head []string, settings ...http2.Setting) *Client {
	c := &Client{T: t, Conn: conn, ID: 1, Head: head}
	c.Framer = http2.NewFramer(&c.Out, conn)
	c.enc = hpack.NewEncoder(&c.block)
	c.Out.WriteString(http2.ClientPreface)
	c.Must(c.WriteSettings(settings...))
	return c
}

// Must ends the test at an error.
func (c *Client) Must(err error) {
	c.T.Helper()
	if err != nil {
		c.T.Fatal(err)
	}
}

// Flush sends what was written.
func (c *Client) Flush() {
	c.T.Helper()
	_, err := c.Conn.Write(c.Out.Bytes())
	c.Must(err)
	c.Out.Reset()
}

// Block encodes a header block. It is valid until the next one.
func (c *Client) Block(fields ...hpack.HeaderField) []byte {
	c.block.Reset()
	for _, f := range fields {
		c.Must(c.enc.WriteField(f))
	}
	return c.block.Bytes()
}

// Fields is Block for fields that are written "name=value".
func (c *Client) Fields(list ...string) []byte {
	fields := make([]hpack.HeaderField, len(list))
	for i, text := range list {
		fields[i].Name, fields[i].Value, _ = strings.Cut(text, "=")
	}
	return c.Block(fields...)
}

// Begin starts a stream with a header, and returns its number.
func (c *Client) Begin(end bool, list ...string) (id uint32) {
	id = c.ID
	c.ID += 2
	c.Must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.Fields(list...), EndHeaders: true, EndStream: end}))
	return id
}

// Open starts a request whose body is still to come.
func (c *Client) Open(more ...string) (id uint32) {
	return c.Begin(false, append(c.Head[:len(c.Head):len(c.Head)], more...)...)
}

// Push writes a whole request.
func (c *Client) Push(body string) (id uint32) {
	id = c.Open()
	c.Must(c.WriteData(id, true, []byte(body)))
	return id
}

// Until reads frames until one satisfies f.
func (c *Client) Until(f func(http2.Frame) bool) http2.Frame {
	c.T.Helper()
	c.Must(c.Conn.SetReadDeadline(time.Now().Add(Liveness)))
	for {
		frame, err := c.ReadFrame()
		c.Must(err)
		if f(frame) {
			return frame
		}
	}
}

// Pong waits until the server has seen all that was sent.
func (c *Client) Pong() {
	c.T.Helper()
	c.Must(c.WritePing(false, [8]byte{}))
	c.Flush()
	c.Until(Of[*http2.PingFrame])
}

// Of reports whether a frame is of a kind.
func Of[T http2.Frame](f http2.Frame) bool { _, ok := f.(T); return ok }

// Ended is the last frame of an answer.
func Ended(id uint32) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		return f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream)
	}
}
