//go:build unix

package mutants

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// Store is the status store of a world: the memory store, served over TCP to
// workers that were built with the tag planted. It knows when each row became
// durable, and what workers said before they killed themselves. Its methods
// may be called by several goroutines at once.
type Store struct {
	memory   *status.Memory
	listener net.Listener
	serving  sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool
	closed  bool
	hung    chan struct{}                   // nil = not hung; closed by Hang(false)
	durable map[string]map[rowKey]time.Time // by id
	deaths  []Death
}

// rowKey is the key of a status row of one id.
type rowKey struct {
	device string
	step   int16
	state  push.State
}

// Death is what a worker said before it killed itself.
type Death struct {
	Point string
	At    []Place // what had come to the point; may be empty
}

// Place is a notification, or one on a device.
type Place struct{ ID, Device string }

// newStore starts a store on a free port of 127.0.0.1.
func newStore(layouts status.Layouts) (*Store, error) {
	memory, err := status.NewMemory(layouts)
	if err != nil {
		return nil, err
	}
	s := &Store{memory: memory, conns: make(map[net.Conn]bool), durable: make(map[string]map[rowKey]time.Time)}
	server := rpc.NewServer()
	if err := server.RegisterName("Status", &served{s}); err != nil {
		return nil, fmt.Errorf("serving the status store: %w", err)
	}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("serving the status store: %w", err)
	}
	s.serving.Go(func() { s.accept(server) })
	return s, nil
}

func (s *Store) accept(server *rpc.Server) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.conns[conn] = true
		s.mu.Unlock()
		s.serving.Go(func() {
			server.ServeConn(conn) // closes it
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, conn)
		})
	}
}

// Addr is the store's host:port.
func (s *Store) Addr() string { return s.listener.Addr().String() }

// Close ends the store and waits for its goroutines. It may be called twice.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	if s.hung != nil {
		close(s.hung)
		s.hung = nil
	}
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	_ = s.listener.Close()
	s.serving.Wait()
}

// Hang makes the store swallow what it is asked from now on, as a node that
// does not answer: what it was asked meanwhile is never done. Hang(false) ends
// it.
func (s *Store) Hang(hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case hang && s.hung == nil:
		s.hung = make(chan struct{})
	case !hang && s.hung != nil:
		close(s.hung)
		s.hung = nil
	}
}

// Read returns the rows of ids, aligned with them.
func (s *Store) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	return s.memory.Read(ctx, ids)
}

// Deaths are what workers said before they killed themselves, in order.
func (s *Store) Deaths() []Death {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Death(nil), s.deaths...)
}

// deliveredAt is when a notification became durably DELIVERED on a device; zero
// = it is not.
func (s *Store) deliveredAt(id, device string) (first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, at := range s.durable[id] {
		if k.device == device && k.state == push.StateDelivered && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// endedAt is when the last of the rows that a record at this step wrote became
// durable; zero = there is none. A retry is for the devices that it names:
// another one of the same step may be for others. With intended, an intent is enough. A record
// that had nothing left to do has the time of the first row that left it
// nothing: a final one, or a hand-over at its own step or a later one (a retry
// may claim the devices of the record it came from). What is said of the whole
// counts where nothing is said of a device: behind such rows it is a copy's, whose
// user has opted out meanwhile.
func (s *Store) endedAt(id string, step int16, devices []string, intended bool) (last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var closed, whole time.Time
	for k, at := range s.durable[id] {
		if len(devices) > 0 && k.device != "" && !slices.Contains(devices, k.device) {
			continue
		}
		switch own := k.step == step && (k.state == push.StateSending) == intended; {
		case own && k.device == "":
			whole = latest(whole, at)
		case own:
			last = latest(last, at)
		}
		closes := k.state.Final() || k.state.HandedOver() && k.step >= step
		if closes && (closed.IsZero() || at.Before(closed)) {
			closed = at
		}
	}
	switch {
	case last.IsZero() && whole.IsZero():
		return closed
	case last.IsZero():
		return whole
	}
	return last
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// intents counts all intents, and those that no other row of their device has
// settled: one of the same step or a later one.
func (s *Store) intents() (all, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rows := range s.durable {
		for k := range rows {
			if k.state != push.StateSending {
				continue
			}
			all++
			settled := false
			for other := range rows {
				settled = settled || other.device == k.device && other.state != push.StateSending && other.step >= k.step
			}
			if !settled {
				open++
			}
		}
	}
	return all, open
}

// unknown reports whether a notification ended UNKNOWN on a device.
func (s *Store) unknown(id, device string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := false
	for k := range s.durable[id] {
		if k.device == device && k.state == push.StateDelivered {
			return false
		}
		unknown = unknown || k.device == device && k.state == push.StateUnknown
	}
	return unknown
}

// describe lists the rows of a notification, with when each became durable.
func (s *Store) describe(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows strings.Builder
	for k, at := range s.durable[id] {
		fmt.Fprintf(&rows, " [%s step %d %v %s]", k.device, k.step, k.state, at.Format(time.StampMilli))
	}
	return rows.String()
}

// answered reports whether a device has a row of what its provider said.
func (s *Store) answered(id, device string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.durable[id] {
		if k.device == device && k.state != push.StateSending && k.state != push.StateUnknown {
			return true
		}
	}
	return false
}

// errHung is what a request gets that came while the store hung, after its
// client has long given up.
var errHung = errors.New("the status store hung")

// up is nil unless the store hangs: then it waits for the end of that, and
// nothing may be done for the request.
func (s *Store) up() error {
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	if hung == nil {
		return nil
	}
	<-hung
	return errHung
}

// served is the store as net/rpc calls it.
type served struct{ store *Store }

// Write makes rows durable.
func (s *served) Write(rows []push.Row, ok *bool) error {
	if err := s.store.up(); err != nil {
		return err
	}
	if err := s.store.memory.Write(context.Background(), rows); err != nil {
		return err
	}
	now := time.Now()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for _, r := range rows {
		rows := s.store.durable[r.ID]
		if rows == nil {
			rows = make(map[rowKey]time.Time)
			s.store.durable[r.ID] = rows
		}
		if key := (rowKey{r.Device, r.Step, r.State}); rows[key].IsZero() {
			rows[key] = now
		}
	}
	*ok = true
	return nil
}

// Read answers a confirm read.
func (s *served) Read(ids []string, rows *[][]push.Row) (err error) {
	if err := s.store.up(); err != nil {
		return err
	}
	*rows, err = s.store.memory.Read(context.Background(), ids)
	return err
}

// Dying hears a worker's last words.
func (s *served) Dying(d Death, heard *bool) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.deaths = append(s.store.deaths, d)
	*heard = true
	return nil
}
