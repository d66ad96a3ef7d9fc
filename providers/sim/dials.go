package sim

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/providers/sim/engine"
)

// dials decides whose connections are taken. Safe for concurrent use.
type dials struct {
	fate *fate

	mu    sync.Mutex
	peers map[netip.Addr]*peer
	all   peer // stands for every address
}

// peer is what is remembered of an address that dials.
type peer struct {
	dials   window
	refused time.Time // until then its connections are reset; simulated
	by      string    // who says so
}

func newDials(f *fate) *dials { return &dials{fate: f, peers: map[netip.Addr]*peer{}} }

func addressOf(remote net.Addr) netip.Addr {
	a, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{} // no TCP
	}
	return a.Addr().Unmap()
}

// of is called with mu held.
func (d *dials) of(from netip.Addr) *peer {
	who := d.peers[from]
	if who == nil {
		who = &peer{}
		d.peers[from] = who
	}
	return who
}

// turnsAway reports whether a new connection is reset, because its address has
// dialled too often or is refused by command.
func (d *dials) turnsAway(c *Conn, p Provider) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	rules, now := d.fate.rules.Load(), d.fate.clock.Now()
	who := d.of(c.address)
	if who.dials.over(rules.Dials, now) && !now.Before(who.refused) {
		who.refused, who.by = now.Add(rules.DialsRefused), byRule
	}
	by := who.by
	if now.Before(d.all.refused) {
		by = d.all.by
	} else if !now.Before(who.refused) {
		return false
	}
	d.fate.events.add(Event{
		Provider: p.String(), Conn: c.id, Do: DoRefuse.String(), Behaviour: doNames[DoRefuse].behaviour, By: by,
	})
	return true
}

// refuse resets what an address dials from now on, for a simulated time.
func (d *dials) refuse(from netip.Addr, a *Act, by string) {
	until := d.fate.clock.Now().Add(a.For)
	d.mu.Lock()
	defer d.mu.Unlock()
	who := d.of(from)
	who.refused, who.by = until, by
}

// refuseAll is refuse for everybody.
func (d *dials) refuseAll(a *Act, by string) {
	until := d.fate.clock.Now().Add(a.For)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = peer{refused: until, by: by}
}

// open starts the session of a new connection, of one provider's clients or of
// all (Nobody). It returns nil to turn it away.
func (s *Server) open(p Provider, c engine.Client) engine.Session {
	memory := NewConn()
	memory.id, memory.address, memory.remote = c.ID, addressOf(c.Addr), c.Addr
	if s.dials.turnsAway(memory, p) {
		return nil
	}
	return &session{policy: s.policy, dials: s.dials, streams: s.options.MaxConcurrentStreams, memory: memory, provider: p, idleAt: neverIdle}
}

// sessions lists those of the open connections of a provider's clients
// (Nobody: all), or the one of a number only (0: all).
func (s *Server) sessions(p Provider, id uint64) []*session {
	var found []*session
	for _, open := range s.engine.Sessions() {
		one := open.(*session) // open made it
		if id != 0 && one.memory.id != id {
			continue
		}
		one.conn.Hold(func(engine.Held) {
			if p == Nobody || one.provider == p {
				found = append(found, one)
			}
		})
	}
	return found
}
