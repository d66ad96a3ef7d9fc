package status

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/push"
)

// node is a Cassandra of one node, as far as the driver and the store's own
// statements need it: protocol version 4 over a loopback socket. It keeps rows
// in a Memory, has a catalogue for the schema, and answers as the test tells it
// to.
type node struct {
	listener net.Listener
	owned    sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool
	schema  *catalogue
	rows    *Memory
	buckets map[string]int64 // of the ids that have rows
	packed  map[string]bool  // of the ids that have rows: they are in the column details
	reads   []int            // ids of each confirm query
	batches []int            // rows of each batch
	asked   map[string]int   // requests by kind: hello, schema, read, write, ping
	answer  func(what string, n int) error
	raw     []byte // answers every confirm query, from the number of rows on; nil = with the rows that there are
}

// Faults in place of a node's answer.
var (
	errSilent = errors.New("it says nothing")
	errHangUp = errors.New("it ends the connection")
)

func startNode(t *testing.T) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := NewMemory(DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{listener: l, conns: map[net.Conn]bool{}, schema: asMade(), rows: rows, buckets: map[string]int64{}, packed: map[string]bool{}, asked: map[string]int{}}
	n.owned.Go(n.accept)
	t.Cleanup(func() {
		_ = l.Close()
		n.mu.Lock()
		for conn := range n.conns {
			_ = conn.Close()
		}
		n.mu.Unlock()
		n.owned.Wait()
	})
	return n
}

func (n *node) addr() string { return n.listener.Addr().String() }

// says makes the node give this answer to every request of a kind; nil = a
// correct answer.
func (n *node) says(what string, answer error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = func(of string, _ int) error {
		if of == what {
			return answer
		}
		return nil
	}
}

// count is the number of requests of a kind so far.
func (n *node) count(what string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[what]
}

func (n *node) accept() {
	for {
		conn, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		n.conns[conn] = true
		n.mu.Unlock()
		n.owned.Go(func() { n.serve(conn) })
	}
}

func (n *node) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.conns, conn)
	}()
	for {
		var head [headerSize]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[5:]))
		if _, err := io.ReadFull(conn, body); err != nil {
			return
		}
		kind, reply, err := n.reply(head[4], wire{body})
		var refused frame
		switch {
		case errors.Is(err, errSilent):
			continue
		case errors.As(err, &refused):
			kind, reply = kindError, refusal(refused)
		case err != nil:
			return
		}
		head[0], head[1], head[4] = 0x84, 0, kind
		binary.BigEndian.PutUint32(head[5:], uint32(len(reply)))
		if _, err := conn.Write(append(head[:], reply...)); err != nil {
			return
		}
	}
}

// Kinds of messages besides those of hosts.go.
const (
	kindError    = 0
	kindStartup  = 1
	kindReady    = 2
	kindQuery    = 7
	kindResult   = 8
	kindPrepare  = 9
	kindExecute  = 10
	kindRegister = 11
	kindBatch    = 13
)

// refusal is the body of an error, with values if its kind has some.
func refusal(f frame) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(f.code))
	b = appendText(b, f.text)
	switch f.code {
	case gocql.ErrCodeUnavailable: // consistency, required, alive
		b = append(b, make([]byte, 2+4+4)...)
	case gocql.ErrCodeReadTimeout: // consistency, received, required, data
		b = append(b, make([]byte, 2+4+4+1)...)
	}
	return b
}

// reply answers one request. Prepared statements are identified by their text.
func (n *node) reply(kind byte, body wire) (byte, []byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch kind {
	case kindOptions:
		return kindSupported, []byte{0, 0}, nil
	case kindStartup:
		return kindReady, nil, n.note("hello")
	case kindRegister:
		return kindReady, nil, nil
	case kindPrepare:
		of, err := statementOf(string(body.long()))
		return kindResult, of.prepared(), err
	case kindQuery:
		cql := string(body.long())
		reply, err := n.query(cql, body.values())
		return kindResult, reply, err
	case kindExecute:
		cql := string(body.short())
		reply, err := n.query(cql, body.values())
		return kindResult, reply, err
	case kindBatch:
		err := n.note("write")
		if err == nil {
			err = n.insert(body)
		}
		return kindResult, resultVoid, err
	}
	return 0, nil, fmt.Errorf("a message of kind %d", kind)
}

// note counts a request, and returns the fault to answer it with, if any.
func (n *node) note(what string) error {
	n.asked[what]++
	if n.answer == nil {
		return nil
	}
	return n.answer(what, n.asked[what])
}

func (n *node) query(cql string, values [][]byte) ([]byte, error) {
	switch {
	case strings.HasPrefix(cql, "USE "):
		return appendText(resultKeyspace, strings.Trim(cql[4:], `"`)), nil
	case strings.Contains(cql, "CREATE "), strings.Contains(cql, "ALTER "):
		n.schema.ask(context.Background(), cql)
		return resultVoid, nil
	}
	of, err := statementOf(cql)
	if err != nil {
		return nil, err
	}
	switch {
	case cql == selectRows:
		if err := n.note("read"); err != nil {
			return nil, err
		}
		if n.raw != nil {
			return append(of.head(), n.raw...), nil
		}
		return n.find(of, int64(binary.BigEndian.Uint64(values[0])), wire{values[1]})
	case strings.Contains(cql, " FROM system_schema."):
		if err := n.note("schema"); err != nil {
			return nil, err
		}
		args := make([]any, len(values))
		for i, v := range values {
			args[i] = string(v)
		}
		found := n.schema.ask(context.Background(), cql, args...).(*rowsFound)
		return of.rows(found.rows), found.err
	case strings.Contains(cql, "FROM system.local"):
		if !strings.Contains(cql, "*") {
			if err := n.note("ping"); err != nil {
				return nil, err
			}
		}
		self := net.IPv4(127, 0, 0, 1).To4()
		row := []any{"local", "dc1", "rack1", [16]byte{15: 1}, "4.1.0", "org.apache.cassandra.dht.Murmur3Partitioner", self, self, [16]byte{15: 2}}
		return of.rows([][]any{row[:len(of.result)]}), nil
	}
	return of.rows(nil), nil
}

// find is the answer to a confirm query: the rows of its ids in its bucket.
func (n *node) find(of statement, bucket int64, list wire) ([]byte, error) {
	var rows [][]any
	count := list.uint32()
	n.reads = append(n.reads, int(count))
	for range count {
		id := string(list.long())
		if n.buckets[id] != bucket {
			continue
		}
		found, err := n.rows.Read(context.Background(), []string{id})
		if err != nil {
			return nil, err
		}
		for _, r := range found[0] {
			rows = append(rows, cellsOf(&r, n.packed[id]))
		}
	}
	return of.rows(rows), nil
}

// insert stores the rows of a batch.
func (n *node) insert(body wire) error {
	body.cut(1) // unlogged
	count := int(body.uint16())
	n.batches = append(n.batches, count)
	for range count {
		body.cut(1) // prepared
		cql, v := string(body.short()), body.list()
		switch cql {
		case insertColumns:
		case insertPacked:
			packed := wire{v[5]}
			v = slices.Concat(v[:5], [][]byte{packed.long(), packed.long(), packed.long(), packed.long(), packed.long(), packed.long()}, v[6:])
			if len(packed.rest) > 0 {
				return fmt.Errorf("details with %x behind them", packed.rest)
			}
		default:
			return fmt.Errorf("a batch with %q", cql)
		}
		at := func(i int) []byte {
			if v[i] == nil {
				return make([]byte, 8)
			}
			return v[i]
		}
		r := push.Row{
			ID: string(v[1]), Device: string(v[2]), Step: int16(binary.BigEndian.Uint16(v[3])), State: push.State(v[4][0]),
			Platform: push.Platform(at(6)[0]), ProviderID: string(v[7]), Reason: string(v[8]),
			UserHash: binary.BigEndian.Uint64(v[9]), Place: binary.BigEndian.Uint64(at(10)), At: time.UnixMicro(int64(binary.BigEndian.Uint64(v[11]))),
		}
		if millis := int64(binary.BigEndian.Uint64(v[5])); millis != r.At.UnixMilli() {
			return fmt.Errorf("a row of %d ms with a write time of %v", millis, r.At)
		}
		n.packed[r.ID] = cql == insertPacked
		n.buckets[r.ID] = int64(binary.BigEndian.Uint64(v[0]))
		if err := n.rows.Write(context.Background(), []push.Row{r}); err != nil {
			return err
		}
	}
	return nil
}
