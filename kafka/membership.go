package kafka

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
)

// membership keeps the lease of one group member. It is told of every group
// request and its answer, in the order in which they pass the connection.
//
// The lease is the send time of the last request that the coordinator answered
// for this member + the session time-out: the coordinator cannot have given up
// the member before. The client sends no heartbeats while its JoinGroup is
// pending, which may be as long as the slowest member drains: so meanwhile the
// Source asks for itself (beatWhileJoining). That a JoinGroup was written is no
// lease: perhaps nobody got it.
//
// All methods may be called at once, and none blocks.
type membership struct {
	session time.Duration
	lease   *pipeline.Lease
	// expelled is called, with mu held, when an answer says that the
	// coordinator does not know this member any more. It gets the number of the
	// expulsion: there is no lease, not even a new one, until fenced is called
	// with the last one's.
	expelled func(n int)

	mu         sync.Mutex
	member     bool      // the coordinator has answered us as a member
	answered   time.Time // send time of the last request that it answered so
	expulsions int
	unfenced   bool             // there are assignments of a membership that is over
	joins      map[request]bool // pending JoinGroups of a member
}

func newMembership(session time.Duration, expelled func(n int)) *membership {
	return &membership{session: session, lease: pipeline.NewLease(), expelled: expelled, joins: make(map[request]bool)}
}

// sent notes a request before its first byte is written.
func (m *membership) sent(r request) {
	if r.key != kmsg.JoinGroup {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.member {
		m.joins[r] = true
	}
}

// lost notes that no answer will come: the connection is gone.
func (m *membership) lost(r request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.joins, r)
}

// joining reports whether a JoinGroup of a member is pending.
func (m *membership) joining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.joins) > 0
}

// answer notes what the coordinator answered to a request of that send time.
func (m *membership) answer(r request, sent time.Time, code int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.joins, r)
	switch err := kerr.ErrorForCode(code); err {
	case nil, kerr.RebalanceInProgress:
		// A JoinGroup's answer is none yet: SyncGroup's says who belongs.
		m.member = m.member || r.key != kmsg.JoinGroup
		if m.member && sent.After(m.answered) {
			m.answered = sent
		}
	case kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.FencedMemberEpoch:
		if m.member {
			m.leave()
			m.expulsions, m.unfenced = m.expulsions+1, true
			m.expelled(m.expulsions)
		}
	}
	m.update()
}

// fenced says that all that was assigned before the n-th expulsion is fenced.
func (m *membership) fenced(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unfenced = m.unfenced && n < m.expulsions
	m.update()
}

// end ends the membership: the partitions are lost.
func (m *membership) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leave()
	m.update()
}

func (m *membership) leave() {
	m.member, m.answered = false, time.Time{}
	clear(m.joins)
}

// update brings the lease to its deadline. The caller holds mu.
func (m *membership) update() {
	if !m.member || m.unfenced {
		m.lease.End()
		return
	}
	m.lease.Extend(m.answered.Add(m.session))
}
