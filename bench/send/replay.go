//go:build linux

package send

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// driveReplay is the cheapest client there can be, to see what the simulator
// does: frames that were encoded before are written again and again with new
// stream numbers, and of what comes back only the ends of streams are counted.
// It knows no latencies.
func driveReplay(ctx context.Context, s *Spec, c *tally) error {
	conf, err := s.tls()
	if err != nil {
		return err
	}
	address, err := url.Parse(s.URL)
	if err != nil {
		return fmt.Errorf("address of the simulator: %w", err)
	}
	auth, err := s.authorization()
	if err != nil {
		return err
	}
	conf.NextProtos = []string{"h2"}
	all := devices(s.Connections * s.Streams)
	connected := make([]*replay, s.Connections)
	for i := range connected {
		conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", address.Host)
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		defer conn.Close()
		connected[i] = &replay{conn: conn, counts: c, answers: make(chan int, s.Streams)}
		connected[i].encode(all[i*s.Streams:][:s.Streams], address.Host, s.Topic, auth)
	}
	var running sync.WaitGroup
	for _, r := range connected {
		running.Go(func() { r.run(ctx) })
	}
	running.Wait()
	return nil
}

// replay is one connection.
type replay struct {
	conn   io.ReadWriteCloser
	counts *tally

	first   []byte // preface, settings and the request that fills the header table
	frames  []byte // of all requests, HEADERS and DATA in turn
	numbers []int  // where their stream numbers stand, two each request
	starts  []int  // where each request begins, and the end
	next    uint32 // stream number

	answers chan int // how many more were answered
}

// encode makes the frames. After the first request the header table has all
// that is the same in every one, and does not change any more.
func (r *replay) encode(to []device, host, topic, auth string) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	var out bytes.Buffer
	framer := http2.NewFramer(&out, nil)
	request := func(stream uint32, d device) {
		block.Reset()
		field := func(name, value string, changes bool) {
			// What is sensitive is not put into the table.
			_ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: changes}) // to memory
		}
		field(":method", "POST", false)
		field(":scheme", "https", false)
		field(":authority", host, false)
		field(":path", devicePath+d.token, true)
		field("authorization", auth, false)
		field("apns-topic", topic, false)
		field("apns-push-type", pushType, false)
		field("apns-priority", strconv.Itoa(priority), false)
		field("apns-expiration", strconv.Itoa(expiration), true)
		field("apns-id", d.id, true)
		r.numbers = append(r.numbers, out.Len()+streamAt)
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}) // to memory
		r.numbers = append(r.numbers, out.Len()+streamAt)
		_ = framer.WriteData(stream, true, []byte(body)) // to memory
	}
	out.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings() // to memory
	request(1, to[0])
	r.first, r.next, r.numbers = bytes.Clone(out.Bytes()), 3, nil
	out.Reset()
	for _, d := range to {
		r.starts = append(r.starts, out.Len())
		request(1, d)
	}
	r.frames, r.starts = out.Bytes(), append(r.starts, out.Len())
}

// Where things stand in the header of a frame.
const (
	frameHeader = 9
	streamAt    = 5
)

// run keeps all streams busy until ctx ends.
func (r *replay) run(ctx context.Context) {
	reading := make(chan error, 1)
	go func() { reading <- r.read() }()
	err := r.write(ctx)
	_ = r.conn.Close() // ends the reader
	if e := <-reading; err == nil && ctx.Err() == nil {
		err = e
	}
	if err != nil && ctx.Err() == nil {
		r.counts.fail(err)
	}
}

// write sends as many requests as were answered.
func (r *replay) write(ctx context.Context) error {
	if _, err := r.conn.Write(r.first); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	at, free := 0, len(r.starts)-2 // one stream is under way
	for {
		for free > 0 {
			n := min(free, len(r.starts)-1-at)
			if err := r.send(at, at+n); err != nil {
				return err
			}
			at, free = (at+n)%(len(r.starts)-1), free-n
		}
		select {
		case n, ok := <-r.answers:
			if !ok {
				return errors.New("the server ended the connection")
			}
			free += n
		case <-ctx.Done():
			return nil
		}
	}
}

// send writes some requests in one piece, with the next stream numbers.
func (r *replay) send(from, to int) error {
	for i := from; i < to; i++ {
		for _, number := range r.numbers[2*i : 2*i+2] {
			binary.BigEndian.PutUint32(r.frames[number:], r.next)
		}
		r.next += 2
	}
	if _, err := r.conn.Write(r.frames[r.starts[from]:r.starts[to]]); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// read counts the ends of streams and tells the writer, once for all that has
// come.
func (r *replay) read() error {
	defer close(r.answers)
	in := bufio.NewReaderSize(r.conn, 64<<10)
	answered := 0
	for {
		header, err := in.Peek(frameHeader)
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		length := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
		kind, flags := http2.FrameType(header[3]), http2.Flags(header[4])
		switch {
		case kind == http2.FrameGoAway || kind == http2.FrameRSTStream:
			return fmt.Errorf("%v from the server", kind)
		case (kind == http2.FrameHeaders || kind == http2.FrameData) && flags.Has(http2.FlagDataEndStream):
			answered++
		}
		if _, err := in.Discard(frameHeader + length); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		if answered > 0 && in.Buffered() < frameHeader {
			r.counts.answered.Add(int64(answered))
			r.answers <- answered
			answered = 0
		}
	}
}
