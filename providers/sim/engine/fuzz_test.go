package engine

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Whatever frames a client sends, the server neither panics nor loses count:
// each stream that it counts as open waits for something, and what was decided
// is answered or dropped.
func FuzzFrames(f *testing.F) {
	var out, block bytes.Buffer
	framer, enc := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	framer.AllowIllegalWrites = true
	head := func(id uint32, end bool, more ...string) {
		block.Reset()
		for i, list := 0, append([]string{":method", "POST", ":scheme", "https", ":path", devicePath}, more...); i < len(list); i += 2 {
			if err := enc.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]}); err != nil {
				f.Fatal(err)
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end}); err != nil {
			f.Fatal(err)
		}
	}
	seed := func(latency uint8, errs ...error) {
		for _, err := range errs {
			if err != nil {
				f.Fatal(err)
			}
		}
		f.Add(latency, bytes.Clone(out.Bytes()))
		out.Reset()
		enc.SetMaxDynamicTableSize(0) // each connection has its own table
		enc.SetMaxDynamicTableSize(headerTable)
	}
	body := []byte(`{"pf_id":"n1"}`)
	head(1, false)
	seed(0, framer.WriteData(1, true, body), framer.WriteRSTStream(1, 0), framer.WritePing(false, [8]byte{}))
	head(1, false, "content-length", "14")
	seed(1, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}), framer.WriteData(1, true, body), framer.WriteWindowUpdate(1, 9), framer.WriteRSTStream(1, 0))
	head(1, true)
	head(3, true, "te", "x")
	head(5, false)
	head(5, true, "a", "b")
	seed(1, framer.WriteData(1, true, body), framer.WritePriority(3, http2.PriorityParam{StreamDep: 3}), framer.WriteGoAway(0, 0, nil))
	head(1, false)
	head(3, false)
	head(5, false)
	seed(2, framer.WriteDataPadded(3, true, body, make([]byte, 3)), framer.WriteRSTStream(3, 0), framer.WriteData(1, true, body), framer.WriteRSTStream(1, 0))
	head(1, false)
	long := bytes.Repeat([]byte{0x80 | indexDate}, maxHeaderBlock/32) // a byte a field: the list is long, the block is not
	seed(0, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: long, EndHeaders: true}))
	f.Fuzz(func(t *testing.T, latency uint8, in []byte) {
		h := &host{streams: 2, latency: time.Duration(latency%3) * 3 * time.Second}
		client, server := net.Pipe()
		defer func() { _ = client.Close() }() // nobody reads there
		c := newConn(&guest{host: h}, time.Now, nil, newReadAhead(server))
		var err error
		for err == nil && len(in) >= headerSize {
			n := min(int(in[0])<<16|int(in[1])<<8|int(in[2]), maxFrame, len(in)-headerSize)
			err = c.frame(&frame{
				kind: http2.FrameType(in[3]), flags: http2.Flags(in[4]), stream: binary.BigEndian.Uint32(in[5:]) & maxWindow,
				payload: in[headerSize:][:n],
			})
			in = in[headerSize+n:]
		}
		c.account(t)
		c.settle()
		c.fail()
		if received, dropped, _ := h.counts(); dropped != received {
			t.Errorf("%d dropped of %d, want everything dropped that was decided: nothing was written", dropped, received)
		}
	})
}

// account compares the number of open streams with what they wait for, and with
// the windows that are kept.
func (c *Conn) account(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := len(c.streams) + len(c.silent) + len(c.waiting)
	for tick := c.wheel.next; tick < c.wheel.until; tick++ {
		waiting += len(c.wheel.slots[tick%wheelTicks].owed)
	}
	if c.open != waiting || c.open > c.limit {
		t.Fatalf("%d streams are open, %d wait, the limit is %d", c.open, waiting, c.limit)
	}
	for id := range c.updates {
		if c.streams[id] == nil && c.waitingFor(id) < 0 {
			t.Fatalf("stream %d has a window, and needs none", id)
		}
	}
}
