package gateway

import (
	"errors"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// A body begins with little memory and gets twice as much whenever that is full: callers
// that say they will send much, and do not, hold little.
const (
	firstRoom = 4 << 10 // bytes, a power of two
	roomSizes = 10      // that are used again: 4 KiB to 2 MiB
)

// budget bounds the memory of all bodies that are being read and checked. It is safe for
// concurrent use.
type budget struct {
	limit int64                // bytes
	taken atomic.Int64         // bytes
	rooms [roomSizes]sync.Pool // of *room that nobody uses; the i-th of firstRoom<<i bytes
}

// room is memory for one body.
type room struct{ text []byte }

// kind is what a body is of. Batches and queries leave a quarter of the memory to single
// messages, whose senders wait for one answer each.
type kind uint8

const (
	ofMessage kind = iota
	ofMany
)

func (b *budget) most(k kind) int64 {
	if k == ofMany {
		return b.limit - b.limit/4
	}
	return b.limit
}

// take is room for so many bytes; nil = there is none until others give some back.
func (b *budget) take(size int, k kind) *room {
	for {
		taken := b.taken.Load()
		if taken+int64(size) > b.most(k) {
			return nil
		}
		if b.taken.CompareAndSwap(taken, taken+int64(size)) {
			break
		}
	}
	if pool := b.pool(size); pool != nil {
		if r, ok := pool.Get().(*room); ok {
			return r
		}
	}
	return &room{make([]byte, 0, size)}
}

// give gives room back. Nobody may use its text any more.
func (b *budget) give(r *room) {
	size := cap(r.text)
	if pool := b.pool(size); pool != nil {
		r.text = r.text[:0]
		pool.Put(r)
	}
	b.taken.Add(-int64(size))
}

// pool has rooms of this size; nil = they are not used again.
func (b *budget) pool(size int) *sync.Pool {
	i := bits.Len(uint(size)) - bits.Len(firstRoom)
	if i < 0 || i >= roomSizes || size != firstRoom<<i {
		return nil
	}
	return &b.rooms[i]
}

// readBody reads a body of this type and of at most so many bytes. The room is to be given
// back.
func (g *Gateway) readBody(r *http.Request, contentType string, most int, k kind) (*room, *Problem) {
	if values := r.Header["Content-Type"]; len(values) != 1 || !isType(values[0], contentType) {
		return nil, newProblem(codeMediaType, "want Content-Type: "+contentType)
	}
	if len(r.Header["Content-Encoding"]) > 0 {
		return nil, newProblem(codeMediaType, "want no Content-Encoding")
	}
	return g.readWhole(r, most, k)
}

// readWhole is readBody for a body whose type was looked at.
func (g *Gateway) readWhole(r *http.Request, most int, k kind) (*room, *Problem) {
	if r.ContentLength > int64(most) {
		return nil, newProblem(codeBodyTooLarge, tooLarge(most))
	}
	body := g.bodies.take(min(firstRoom, most+1), k)
	if body == nil {
		return nil, noRoom()
	}
	problem := g.fill(&body, r.Body, most, k)
	if problem != nil {
		g.bodies.give(body)
		return nil, problem
	}
	return body, nil
}

// fill reads all of a body. It exchanges the room for a larger one when it is full.
func (g *Gateway) fill(body **room, from io.Reader, most int, k kind) *Problem {
	for {
		text := (*body).text
		n, err := from.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		(*body).text = text
		switch {
		case len(text) > most:
			return newProblem(codeBodyTooLarge, tooLarge(most))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return newProblem(codeNoBody, "the body did not arrive whole, or not in time")
		case len(text) == cap(text):
			larger := g.bodies.take(min(2*cap(text), most+1), k)
			if larger == nil {
				return noRoom()
			}
			larger.text = append(larger.text, text...)
			g.bodies.give(*body)
			*body = larger
		}
	}
}

func noRoom() *Problem {
	return newProblem(codeBusy, "the bodies of other requests take all memory that there is for them").after(1)
}

func isType(value, want string) bool {
	if value == want {
		return true
	}
	got, parameters, err := mime.ParseMediaType(value)
	return err == nil && got == want && (len(parameters) == 0 || len(parameters) == 1 && strings.EqualFold(parameters["charset"], "utf-8"))
}
