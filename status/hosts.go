package status

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// hosts is gocql's host selection policy. It also notes which nodes the session
// leaves unused.
type hosts struct {
	gocql.HostSelectionPolicy

	mu   sync.Mutex
	down map[string]*gocql.HostInfo // by host id
}

func watchHosts(p gocql.HostSelectionPolicy) *hosts {
	return &hosts{HostSelectionPolicy: p, down: map[string]*gocql.HostInfo{}}
}

// AddHosts implements what gocql asks for at the start: many at once, because
// the policy recomputes the token ring after each.
func (h *hosts) AddHosts(list []*gocql.HostInfo) {
	if many, ok := h.HostSelectionPolicy.(interface{ AddHosts([]*gocql.HostInfo) }); ok {
		many.AddHosts(list)
		return
	}
	for _, host := range list {
		h.AddHost(host)
	}
}

// HostDown implements gocql.HostStateNotifier.
func (h *hosts) HostDown(host *gocql.HostInfo) {
	h.note(host, true)
	h.HostSelectionPolicy.HostDown(host)
}

// HostUp implements gocql.HostStateNotifier.
func (h *hosts) HostUp(host *gocql.HostInfo) {
	h.note(host, false)
	h.HostSelectionPolicy.HostUp(host)
}

// RemoveHost implements gocql.HostStateNotifier.
func (h *hosts) RemoveHost(host *gocql.HostInfo) {
	h.note(host, false)
	h.HostSelectionPolicy.RemoveHost(host)
}

func (h *hosts) note(host *gocql.HostInfo, down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if down {
		h.down[host.HostID()] = host
	} else {
		delete(h.down, host.HostID())
	}
}

// unused are the addresses of the nodes that the session has no connections to.
func (h *hosts) unused() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var addrs []string
	for _, host := range h.down {
		addrs = append(addrs, net.JoinHostPort(host.ConnectAddress().String(), strconv.Itoa(host.Port())))
	}
	return addrs
}

// hostWatch are the times of runHostWatch.
type hostWatch struct {
	interval time.Duration // between two looks
	looks    int           // after this many looks in a row at which an unused node answers the session is sick
	rest     time.Duration // between two sessions replaced for this
}

// enough reports whether the session is to be replaced for a node that answered
// at this many looks in a row, this long after the last such replacement.
func (w hostWatch) enough(looks int, since time.Duration) bool {
	return looks >= w.looks && since >= w.rest
}

// defaultHostWatch gives gocql three of its own attempts to reconnect, and
// keeps a node that answers and still cannot be used from costing a new session
// every time.
func defaultHostWatch() hostWatch {
	return hostWatch{interval: 5 * time.Second, looks: 4, rest: 5 * time.Minute}
}

// runHostWatch asks for a new session when this one leaves a node unused that
// answers. It runs until close.
func (c *cluster) runHostWatch() {
	ticker := time.NewTicker(c.watch.interval)
	defer ticker.Stop()
	answered := map[string]int{} // looks in a row, by address
	var rebuilt time.Time
	for {
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
		l := c.use()
		unused := l.hosts.unused()
		l.done()
		now := map[string]int{}
		for _, addr := range unused {
			if c.answers(addr) == nil {
				now[addr] = answered[addr] + 1
			}
		}
		answered = now
		for addr, looks := range answered {
			if c.watch.enough(looks, time.Since(rebuilt)) {
				c.opts.Log.Warn("cassandra node answers but the driver does not use it", "node", addr)
				rebuilt = time.Now()
				c.rebuild()
			}
		}
	}
}

// The header of a message of protocol version 4: version, flags, stream (2
// bytes), kind, length of the body (4).
const (
	headerSize    = 9
	kindOptions   = 5
	kindSupported = 6
)

// answers asks a node what it supports, the one question that needs no login. A
// connection alone says little: a suspended process accepts one too.
func (c *cluster) answers(addr string) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.Timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if config := c.opts.tls(); config != nil {
		config = config.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(addr)
		}
		conn = tls.Client(conn, config) // its handshake comes with the first word
	}
	_, _ = conn.Write([]byte{4, 0, 0, 0, kindOptions, 0, 0, 0, 0}) // where it fails, so does reading
	var header [headerSize]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return err
	}
	if kind := header[4]; kind != kindSupported || binary.BigEndian.Uint32(header[5:]) > 1<<20 {
		return fmt.Errorf("asking %s for its options: answer of kind %d: %w", addr, kind, errors.ErrUnsupported)
	}
	return nil
}
