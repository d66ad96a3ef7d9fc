package sim

import (
	"net"
	"net/netip"
	"time"
)

// peer is what the engine remembers of an address that dials.
type peer struct {
	dials   window
	refused time.Time // until then its connections are reset; simulated
	by      string    // who says so
}

func addressOf(c net.Conn) netip.Addr {
	a, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{} // no TCP
	}
	return a.Addr().Unmap()
}

// turnAway resets a new connection if its address has dialled too often or is
// refused by command. It is called with mu held.
func (e *frameEngine) turnAway(c net.Conn, memory *Conn, p Provider) bool {
	f := e.policy.fate
	rules, now := f.rules.Load(), f.clock.Now()
	who := e.peers[memory.address]
	if who == nil {
		who = &peer{}
		e.peers[memory.address] = who
	}
	if who.dials.over(rules.Dials, now) && !now.Before(who.refused) {
		who.refused, who.by = now.Add(rules.DialsRefused), byRule
	}
	by := who.by
	if now.Before(e.all.refused) {
		by = e.all.by
	} else if !now.Before(who.refused) {
		return false
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // or it is no reset, only an end
	}
	_ = c.Close() // its client sees it
	f.events.add(Event{
		Provider: p.String(), Conn: memory.id, Do: DoRefuse.String(), Behaviour: doNames[DoRefuse].behaviour, By: by,
	})
	return true
}

// refuse resets what an address dials from now on, for a simulated time.
func (e *frameEngine) refuse(from netip.Addr, a *Act, by string) {
	until := e.policy.clock.Now().Add(a.For)
	e.mu.Lock()
	defer e.mu.Unlock()
	who := e.peers[from]
	if who == nil {
		who = &peer{}
		e.peers[from] = who
	}
	who.refused, who.by = until, by
}

// refuseAll is refuse for everybody.
func (e *frameEngine) refuseAll(a *Act, by string) {
	until := e.policy.clock.Now().Add(a.For)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = peer{refused: until, by: by}
}
