//go:build linux

package gateway

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
)

// What callers ask for.
const (
	single = "single" // POST /v1/messages
	batch  = "batch"  // POST /v1/messages/batch
	query  = "query"  // POST /v1/receipts:query
	idle   = "idle"   // one single on each connection, which is left open then
)

// The messages: of one app and service type, to users in turn.
const (
	app         = fleet.App
	serviceType = "transactional"
	users       = 1_000_000
	messageSize = 230 // bytes
)

// lineOf is a message whose id and user are still to be filled in, and where they stand.
func lineOf() (line []byte, id, user int) {
	line = []byte(`{"id":"`)
	id = len(line)
	line = append(line, "00000000-0000-7000-8000-000000000000"...)
	line = append(line, `","app":"`+app+`","service_type":"`+serviceType+`","type":"order_update","user_id":"u`...)
	user = len(line)
	line = append(line, `0000000","title":"On its way","body":"`...)
	line = append(line, bytes.Repeat([]byte{'x'}, messageSize-len(line)-len(`"}`))...)
	return append(line, `"}`...), id, user
}

// Lengths of what is filled in.
const (
	idLength   = 36
	userDigits = 7
)

// request is one of HTTP/1.1 that is made once, and sent again and again with other ids.
type request struct {
	text []byte
	ids  []int // where ids begin
	// users are where the digits of users begin: as many as ids.
	users []int
}

// newRequest makes the request of a kind, with so many lines.
func newRequest(kind, key string, lines int) *request {
	line, id, user := lineOf()
	path, contentType := "/v1/messages", "application/json"
	if kind == batch {
		path, contentType = "/v1/messages/batch", "application/x-ndjson"
		line = append(line, '\n')
	} else {
		lines = 1
	}
	r := &request{text: head(path, key, contentType, lines*len(line))}
	for range lines {
		r.ids, r.users = append(r.ids, len(r.text)+id), append(r.users, len(r.text)+user)
		r.text = append(r.text, line...)
	}
	return r
}

// newQueries makes requests for all receipts, so many in each.
func newQueries(key string, receipts []string, each int) (all []*request) {
	for ; len(receipts) >= each; receipts = receipts[each:] {
		body := []byte(`{"receipts":[`)
		for i, r := range receipts[:each] {
			if i > 0 {
				body = append(body, ',')
			}
			body = strconv.AppendQuote(body, r) // ids of ours and base64
		}
		body = append(body, `]}`...)
		all = append(all, &request{text: append(head("/v1/receipts:query", key, "application/json", len(body)), body...)})
	}
	return all
}

func head(path, key, contentType string, length int) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", path, key, contentType, length)
}

// numbers are what makes each message another one.
type numbers struct {
	next uint64
	run  uint16 // of the run: two in one millisecond differ
}

// fill gives a request new ids, minted now, and other users.
func (n *numbers) fill(r *request, now time.Time) {
	for i, at := range r.ids {
		putID(r.text[at:at+idLength], now, n.run, n.next)
		putDigits(r.text[r.users[i]:r.users[i]+userDigits], n.next*7919%users) // a prime: not one after the other
		n.next++
	}
}

// putID writes a UUIDv7 of this time.
func putID(to []byte, at time.Time, run uint16, n uint64) {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:], uint64(at.UnixMilli())<<16|7<<12|uint64(run&0xfff))
	binary.BigEndian.PutUint64(u[8:], 1<<63|n&(1<<62-1))
	hex.Encode(to[0:8], u[0:4])
	hex.Encode(to[9:13], u[4:6])
	hex.Encode(to[14:18], u[6:8])
	hex.Encode(to[19:23], u[8:10])
	hex.Encode(to[24:36], u[10:16])
}

func putDigits(to []byte, n uint64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = byte('0' + n%10)
		n /= 10
	}
}
