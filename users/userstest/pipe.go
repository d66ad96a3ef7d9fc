package userstest

import (
	"bytes"
	"net"
	"sync"
)

// bufferedConn lets a pipeline be written before its answers are read, as a
// socket's buffers do and net.Pipe does not.
type bufferedConn struct {
	net.Conn
	done chan struct{}

	mu     sync.Mutex
	wake   *sync.Cond
	buf    bytes.Buffer
	closed bool
}

func newBufferedConn(c net.Conn) *bufferedConn {
	b := &bufferedConn{Conn: c, done: make(chan struct{})}
	b.wake = sync.NewCond(&b.mu)
	go b.pump()
	return b
}

func (b *bufferedConn) pump() {
	defer close(b.done)
	for {
		b.mu.Lock()
		for b.buf.Len() == 0 && !b.closed {
			b.wake.Wait()
		}
		chunk := bytes.Clone(b.buf.Bytes())
		b.buf.Reset()
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return
		}
		if _, err := b.Conn.Write(chunk); err != nil {
			return
		}
	}
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	b.wake.Signal()
	return b.buf.Write(p)
}

func (b *bufferedConn) Close() error {
	b.mu.Lock()
	b.closed = true
	b.wake.Signal()
	b.mu.Unlock()
	err := b.Conn.Close()
	<-b.done
	return err
}
