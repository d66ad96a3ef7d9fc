package embedded

import (
	"bytes"
	"io"
	"net"
	"sync"
)

// relay carries the bytes of one connection between a client and the server,
// as sockets do: the server's answers wait in a buffer. With a bare net.Pipe a
// client that writes a whole pipeline before it reads, and a server that
// answers meanwhile, wait for each other.
type relay struct {
	client, server net.Conn // our ends

	mu      sync.Mutex
	changed *sync.Cond
	answers bytes.Buffer
	closed  bool
}

// connect returns the client's end of a connection to server. The goroutines
// are counted in wg; they end when either side closes.
func connect(server net.Conn, wg *sync.WaitGroup) net.Conn {
	outer, inner := net.Pipe()
	r := &relay{client: inner, server: server}
	r.changed = sync.NewCond(&r.mu)
	wg.Go(func() {
		defer r.close()
		_, _ = io.Copy(r.server, r.client) // ends by either side closing
	})
	wg.Go(r.collect)
	wg.Go(r.deliver)
	return outer
}

// collect reads answers as they come, so that the server never waits.
func (r *relay) collect() {
	defer r.close()
	buf := make([]byte, 16<<10)
	for {
		n, err := r.server.Read(buf)
		r.mu.Lock()
		r.answers.Write(buf[:n])
		r.changed.Signal()
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// deliver hands answers to the client when it reads.
func (r *relay) deliver() {
	defer r.close()
	buf := make([]byte, 16<<10)
	for {
		r.mu.Lock()
		for r.answers.Len() == 0 && !r.closed {
			r.changed.Wait()
		}
		n, _ := r.answers.Read(buf)
		closed := r.closed
		r.mu.Unlock()
		if closed {
			return
		}
		if _, err := r.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	r.changed.Signal()
	r.mu.Unlock()
	_ = r.client.Close()
	_ = r.server.Close()
}
