package sim

import (
	"net"
	"time"
)

// Arrival is one push as the simulator decides about it, or what becomes of
// such a decision later, for observers that need times and order where the
// Ledger only counts. FCM's validations are among them.
type Arrival struct {
	At       time.Time // by the real clock
	What     Arrived
	Key      uint64   // of the Ledger's entry; 0 without pf_id
	Conn     uint64   // from 1, in the order of arrival
	Remote   net.Addr // of the client; nil without a connection
	Stream   uint32   // 0 with HTTP/1.1
	Provider Provider
	Reply    Reply // NoReply where there is none, and never will be

	// Of What Decided only, and only valid during the call: also the strings of
	// Request stand in memory that is used again.
	ID      []byte // pf_id of the payload; empty where it has none
	Device  []byte // DeviceHash; empty with ID
	Request *Request
}

// Arrived is what an Arrival tells.
type Arrived uint8

// What there is to tell.
const (
	Decided Arrived = iota // it came, and was accepted or refused
	Unheard                // its answer did not get out
	Undone                 // the same, and the decision is taken back: it counts as never processed
)

// watched tells the observer of a decision.
func (f *fate) watched(p *push, key uint64, r Reply) {
	f.watch(&Arrival{
		At: time.Now(), Key: key, Conn: p.req.Conn.id, Remote: p.req.Conn.remote, Stream: p.req.Stream,
		Provider: p.provider, Reply: r, ID: p.id, Device: p.device, Request: p.req,
	})
}

// dropped writes down that an answer which had been decided did not get out.
func (f *fate) dropped(conn *Conn, stream uint32, d decision, undone bool) {
	f.ledger.drop(d, undone)
	if f.watch == nil {
		return
	}
	what := Unheard
	if undone {
		what = Undone
	}
	f.watch(&Arrival{At: time.Now(), What: what, Key: d.key, Conn: conn.id, Remote: conn.remote, Stream: stream, Provider: d.reply.Provider(), Reply: d.reply})
}
