//go:build linux

package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// answer is what has come of one.
type answer struct {
	text   []byte
	header int // bytes of the header; 0 = it has not come
	length int // of all; valid with a header
}

var (
	headerEnd     = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

// maxHeader bounds the header of an answer.
const maxHeader = 4 << 10

// whole reports whether all of it is there. It fails on what no gateway answers.
func (a *answer) whole() (bool, error) {
	if a.header == 0 {
		end := bytes.Index(a.text, headerEnd)
		switch {
		case end < 0 && len(a.text) > maxHeader:
			return false, errors.New("an answer has no end of its header")
		case end < 0:
			return false, nil
		}
		_, rest, ok := bytes.Cut(a.text[:end+2], contentLength)
		if !ok {
			return false, fmt.Errorf("an answer does not say its length: %q", a.text[:end])
		}
		digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
		n, err := strconv.Atoi(string(digits))
		if err != nil {
			return false, fmt.Errorf("an answer has the length %q", digits)
		}
		a.header, a.length = end+len(headerEnd), end+len(headerEnd)+n
	}
	if len(a.text) > a.length {
		return false, errors.New("more than an answer has come")
	}
	return len(a.text) == a.length, nil
}

// reset makes room for the next.
func (a *answer) reset() { *a = answer{text: a.text[:0]} }

// Said by answers.
var (
	status202  = []byte("HTTP/1.1 202 ")
	status200  = []byte("HTTP/1.1 200 ")
	finalYes   = []byte(`"final":true`)
	receiptKey = []byte(`"receipt":"`)
)

// check fails unless it is what has to be answered: 202, or 200 with so many reports that
// are final.
func (a *answer) check(kind string, receipts int) error {
	want := status202
	if kind == query {
		want = status200
	}
	if !bytes.HasPrefix(a.text, want) {
		return fmt.Errorf("answered %.*q, not %q: %.300s", len(want), a.text, want[9:12], a.text[a.header:])
	}
	if kind != query {
		return nil
	}
	if n := bytes.Count(a.text[a.header:], finalYes); n != receipts {
		return fmt.Errorf("of %d receipts %d are final: %.300s", receipts, n, a.text[a.header:])
	}
	return nil
}

// receipts are those of a batch, in the order of its lines.
func (a *answer) receipts() (all []string) {
	rest := a.text[a.header:]
	for {
		_, after, ok := bytes.Cut(rest, receiptKey)
		if !ok {
			return all
		}
		receipt, after, ok := bytes.Cut(after, []byte{'"'})
		if !ok {
			return all
		}
		all, rest = append(all, string(receipt)), after
	}
}
