package kafka

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership keeps the lease of one group member. It learns of every group request and
// its answer, in the order in which they pass the connection.
//
// The lease ends a session time-out after the send time of the last heartbeat that the
// coordinator answered to this member: the coordinator cannot have expelled the member
// before. Nothing else extends it. The answers to JoinGroup and SyncGroup need not have
// renewed the session: Kafka 4.3 does not for a SyncGroup that comes when the leader's
// has been there (GroupMetadataManager.classicGroupSyncToClassicGroup), nor for a
// JoinGroup that comes a second time. The client sends its first heartbeat only a while
// after these, and none while they are pending, which takes as long as the slowest member
// drains. So the Source sends heartbeats as well (beat).
//
// Being heard of is not enough in a rebalance: when its time-out is over, the coordinator
// removes who has not sent JoinGroup, and later who has not sent SyncGroup. Either may
// have been lost, on a connection of its own. So the lease also ends a rebalance time-out
// after the coordinator was known to wait for neither.
//
// All methods are safe for concurrent use, and none blocks.
type membership struct {
	session   time.Duration
	rebalance time.Duration // this member's time-out; the coordinator takes the longest of all
	lease     *lease
	// expelled is called with mu held when an answer says that the coordinator no longer
	// knows this member. n is the number of the expulsion. There is no lease, not even a
	// new one, until fenced is called with the number of the last expulsion.
	expelled func(n int)

	mu       sync.Mutex
	member   bool      // the coordinator has answered a request of this member
	id       string    // its member id, if member is set
	answered time.Time // send time of its last heartbeat that was answered
	// settled is the last time at which the coordinator is known to have waited neither for
	// a JoinGroup nor for a SyncGroup of this member; zero = there are none.
	settled    time.Time
	syncing    bool // JoinGroup has been answered and SyncGroup has not
	again      bool // a JoinGroup was lost since: the next answer may be that to it
	classic    bool // it is a member by the classic protocol
	expulsions int
	unfenced   bool             // assignments of an ended membership are not fenced yet
	joins      map[request]bool // pending JoinGroups of a member
	// sessions are pending JoinGroups and SyncGroups, also of who is no member yet, with when
	// they were sent.
	sessions map[request]time.Time
	// synced has a value when a SyncGroup has been answered and beat has not heeded that.
	synced chan struct{}
}

func newMembership(session, rebalance time.Duration, expelled func(n int)) *membership {
	return &membership{session: session, rebalance: rebalance, lease: newLease(), expelled: expelled, joins: make(map[request]bool), sessions: make(map[request]time.Time), synced: make(chan struct{}, 1)}
}

// sent notes a request before its first byte is written.
func (m *membership) sent(r request) {
	if r.key != kmsg.JoinGroup && r.key != kmsg.SyncGroup {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[r] = time.Now()
	if m.member && r.key == kmsg.JoinGroup {
		m.joins[r] = true
	}
}

// lost notes that no answer will come, because the connection failed.
func (m *membership) lost(r request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.joins, r)
	delete(m.sessions, r)
	m.again = m.again || r.key == kmsg.JoinGroup
}

// joining reports whether a JoinGroup of a member is pending.
func (m *membership) joining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.joins) > 0
}

// between reports whether the client is between two group sessions: a JoinGroup or a
// SyncGroup is pending, of a member or of who is to become one.
func (m *membership) between() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions) > 0
}

// isClassic reports whether the coordinator knows this member by the classic protocol, in
// which members that leave may send heartbeats.
func (m *membership) isClassic() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.member && m.classic
}

// silent reports whether the client sends no heartbeats although the coordinator may know
// it and is to know that it lives: a JoinGroup of a member or a SyncGroup is pending. A
// SyncGroup waits for the leader's, or for the leader's session to end. If that takes
// longer it was lost, as the leader's was that is not answered at once; all wait for that
// one, until the coordinator has heard nothing of the leader for a session.
func (m *membership) silent(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, sent := range m.sessions {
		if r.key == kmsg.SyncGroup && !r.leads && now.Sub(sent) < m.session {
			return true
		}
	}
	return len(m.joins) > 0
}

// answer notes the coordinator's answer to a request with its send time.
func (m *membership) answer(r request, sent time.Time, code int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.joins, r)
	delete(m.sessions, r)
	switch err := kerr.ErrorForCode(code); err {
	case nil, kerr.RebalanceInProgress:
		m.known(r, sent, err == nil)
	case kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.FencedMemberEpoch:
		if m.member && m.is(r) { // and not what this process was before
			m.leave()
			m.expulsions, m.unfenced = m.expulsions+1, true
			m.expelled(m.expulsions)
		}
	}
	m.update()
}

// is reports whether a request was this member's. By the server-side protocol a client may
// be given its id by the answer to its first heartbeat.
func (m *membership) is(r request) bool {
	return r.member == m.id || r.key == kmsg.ConsumerGroupHeartbeat && m.id == ""
}

// known notes that the coordinator has answered as to one of the group; whole is false if
// that one is to join again. The answer to a JoinGroup makes no member yet: that to the
// SyncGroup does. The caller holds mu.
func (m *membership) known(r request, sent time.Time, whole bool) {
	switch r.key {
	case kmsg.JoinGroup:
		if !whole {
			return
		}
		if m.syncing = true; !m.again {
			m.settle(sent) // no SyncGroup was awaited before
		}
	case kmsg.SyncGroup:
		m.member, m.id, m.classic = true, r.member, true
		if whole {
			m.syncing, m.again = false, false
			m.settle(sent)
			select {
			case m.synced <- struct{}{}:
			default: // it is due already
			}
		}
	case kmsg.ConsumerGroupHeartbeat:
		m.member, m.id, m.classic = true, r.member, false
		m.heard(sent)
	case kmsg.Heartbeat:
		if !m.member || !m.is(r) {
			return
		}
		m.heard(sent)
		if whole && !m.syncing {
			m.settle(sent)
		}
	}
}

// heard notes when a heartbeat was sent that has been answered. The caller holds mu.
func (m *membership) heard(sent time.Time) {
	if sent.After(m.answered) {
		m.answered = sent
	}
}

// settle notes when something was sent whose answer says that nothing of this member was
// awaited by then or later. The caller holds mu.
func (m *membership) settle(at time.Time) {
	if at.After(m.settled) {
		m.settled = at
	}
}

// fenced notes that all assignments from before the n-th expulsion are fenced.
func (m *membership) fenced(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unfenced = m.unfenced && n < m.expulsions
	m.update()
}

// end ends the membership, because the partitions are lost.
func (m *membership) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leave()
	m.update()
}

func (m *membership) leave() {
	m.member, m.answered, m.settled, m.syncing, m.again = false, time.Time{}, time.Time{}, false, false
	clear(m.joins)
}

// update sets the lease's deadline. The caller holds mu.
func (m *membership) update() {
	if !m.member || m.unfenced {
		m.lease.end()
		return
	}
	if session := m.answered.Add(m.session); m.settled.IsZero() { // by the server-side protocol
		m.lease.extend(session)
	} else {
		m.lease.extend(session, m.settled.Add(m.rebalance))
	}
}
