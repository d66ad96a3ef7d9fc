package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// until returns a lease's deadline in whole seconds after from; 0 = it has lapsed by
// then.
func until(m *membership, from time.Time) int {
	for s := range 3600 {
		if m.lease.Lapsed(from.Add(time.Duration(s)*time.Second + time.Millisecond)) {
			return s
		}
	}
	return 3600
}

func TestWhatRenewsALease(t *testing.T) {
	const session, rebalance = 10 * time.Second, 25 * time.Second
	heartbeat, join, sync := request{key: kmsg.Heartbeat}, request{key: kmsg.JoinGroup}, request{key: kmsg.SyncGroup}
	next := request{key: kmsg.ConsumerGroupHeartbeat}
	type step struct {
		reason string
		do     func(m *membership, at func(seconds int) time.Time)
		want   int // seconds after the start at which the lease lapses
	}
	answer := func(r request, sent int, code int16) func(*membership, func(int) time.Time) {
		return func(m *membership, at func(int) time.Time) { m.answer(r, at(sent), code) }
	}
	sent := func(m *membership, _ func(int) time.Time) { m.sent(join) }
	joined := func(m *membership, at func(int) time.Time) { m.answer(sync, at(1), 0); m.answer(heartbeat, at(1), 0) }
	member := step{"a member that has sent a heartbeat", joined, 11}
	tests := []struct {
		name  string
		steps []step
	}{
		{"heartbeats", []step{
			{"nobody has answered", func(*membership, func(int) time.Time) {}, 0},
			{"who is no member yet has no lease by a heartbeat", answer(heartbeat, 1, 0), 0},
			{"the answer to SyncGroup need not have renewed the session", answer(sync, 1, 0), 0},
			{"the first heartbeat does", answer(heartbeat, 1, 0), 11},
			{"a heartbeat counts from when it was sent", answer(heartbeat, 4, 0), 14},
			{"the group moves, and the coordinator knows us", answer(heartbeat, 7, kerr.RebalanceInProgress.Code), 17},
			{"an answer that overtook another takes nothing back", answer(heartbeat, 5, 0), 17},
			{"the coordinator is somewhere else: it has not answered for us", answer(heartbeat, 9, kerr.NotCoordinator.Code), 17},
			{"it is loading: neither", answer(heartbeat, 9, kerr.CoordinatorLoadInProgress.Code), 17},
		}},
		{"rejoining", []step{
			member,
			{"a JoinGroup is sent: perhaps into a dead network", sent, 11},
			{"a heartbeat beside it says that we are known", answer(heartbeat, 5, kerr.RebalanceInProgress.Code), 15},
			{"one that came as the rebalance was over says nothing", answer(heartbeat, 6, kerr.IllegalGeneration.Code), 15},
			{"its answer may be an old one, told again", answer(join, 7, 0), 15},
			{"the group moved on before SyncGroup, which renews nothing", answer(sync, 8, kerr.RebalanceInProgress.Code), 15},
			{"nor does one that the group did not wait for", answer(sync, 9, 0), 15},
			{"the heartbeat after it does", answer(heartbeat, 9, 0), 19},
		}},
		{"a first join", []step{
			{"who is no member yet owns nothing while it joins", sent, 0},
			{"the coordinator hands out a member id first", answer(join, 1, kerr.MemberIDRequired.Code), 0},
			{"the answer to JoinGroup assigns nothing", answer(join, 2, 0), 0},
			member,
		}},
		{"expelled", []step{
			member,
			{"unknown: over at once", answer(heartbeat, 4, kerr.UnknownMemberID.Code), 0},
			{"a new membership is no lease for what the old one owned", func(m *membership, at func(int) time.Time) { m.answer(sync, at(6), 0); m.answer(heartbeat, at(6), 0) }, 0},
			{"when that is fenced, it is", func(m *membership, _ func(int) time.Time) { m.fenced(1) }, 16},
			{"unknown again", answer(heartbeat, 9, kerr.UnknownMemberID.Code), 0},
			{"an earlier expulsion's fence is not enough", func(m *membership, at func(int) time.Time) {
				m.answer(sync, at(10), 0)
				m.answer(heartbeat, at(10), 0)
				m.fenced(1)
			}, 0},
			{"this one's is", func(m *membership, _ func(int) time.Time) { m.fenced(2) }, 20},
		}},
		{"expelled while joining", []step{
			member,
			{"a JoinGroup waits", sent, 11},
			{"it is answered that nobody knows us", answer(join, 5, kerr.UnknownMemberID.Code), 0},
			{"joining as somebody new is no lease", func(m *membership, _ func(int) time.Time) { m.fenced(1); m.sent(join) }, 0},
		}},
		{"lost", []step{
			member,
			{"the client says that the partitions are lost", func(m *membership, _ func(int) time.Time) { m.end() }, 0},
			{"it has joined again", answer(sync, 6, 0), 0},
			{"and is heard of", answer(heartbeat, 6, 0), 16},
		}},
		{"a rebalance that does not end", []step{
			{"the group is whole", func(m *membership, at func(int) time.Time) {
				m.answer(sync, at(1), 0)
				m.answer(heartbeat, at(1), 0)
				m.answer(heartbeat, at(4), 0)
			}, 14},
			{"it is rebalanced, and we are heard of", answer(heartbeat, 10, kerr.RebalanceInProgress.Code), 20},
			{"and again: but our JoinGroup may be lost", answer(heartbeat, 22, kerr.RebalanceInProgress.Code), 29},
			{"it was not, but SyncGroup may be", func(m *membership, at func(int) time.Time) {
				m.answer(join, at(12), 0)
				m.answer(heartbeat, at(30), 0)
			}, 37},
			{"SyncGroup was there when that was sent", answer(sync, 31, 0), 40},
			{"the group is whole again", answer(heartbeat, 32, 0), 42},
			{"an answer of before that comes late takes nothing back", func(m *membership, at func(int) time.Time) {
				m.answer(heartbeat, at(31), 0)
				m.answer(heartbeat, at(45), kerr.RebalanceInProgress.Code)
			}, 55},
			{"the next rebalance, and a JoinGroup is lost", func(m *membership, at func(int) time.Time) {
				m.sent(join)
				m.lost(join)
				m.answer(heartbeat, at(50), kerr.RebalanceInProgress.Code)
			}, 57},
			{"the second one may be answered what the first one was", answer(join, 48, 0), 57},
			{"SyncGroup was there, and the next rebalance begins", func(m *membership, at func(int) time.Time) {
				m.answer(sync, at(50), 0)
				m.answer(heartbeat, at(66), kerr.RebalanceInProgress.Code)
			}, 75},
			{"JoinGroup was there when that was sent", func(m *membership, at func(int) time.Time) {
				m.answer(join, at(67), 0)
				m.answer(heartbeat, at(80), kerr.RebalanceInProgress.Code)
			}, 90},
		}},
		{"a first rebalance that does not end", []step{
			member,
			{"the next one follows at once", answer(heartbeat, 20, kerr.RebalanceInProgress.Code), 26},
		}},
		{"another's", []step{
			{"a member", func(m *membership, at func(int) time.Time) {
				m.answer(request{key: kmsg.SyncGroup, member: "a"}, at(1), 0)
				m.answer(request{key: kmsg.Heartbeat, member: "a"}, at(1), 0)
			}, 11},
			{"what its process was before is unknown", answer(request{key: kmsg.Heartbeat, member: "b"}, 5, kerr.UnknownMemberID.Code), 11},
			{"or was known", answer(request{key: kmsg.Heartbeat, member: "b"}, 5, 0), 11},
			{"it is unknown itself", answer(request{key: kmsg.JoinGroup, member: "a"}, 5, kerr.UnknownMemberID.Code), 0},
		}},
		{"KIP-848 with the id from the coordinator", []step{
			{"the first heartbeat has no id", answer(next, 1, 0), 11},
			{"the next one does", answer(request{key: kmsg.ConsumerGroupHeartbeat, member: "a"}, 4, 0), 14},
			{"another's is no matter", answer(request{key: kmsg.ConsumerGroupHeartbeat, member: "b"}, 5, kerr.UnknownMemberID.Code), 14},
			{"it is fenced", answer(request{key: kmsg.ConsumerGroupHeartbeat, member: "a"}, 7, kerr.FencedMemberEpoch.Code), 0},
		}},
		{"KIP-848 and fenced at once", []step{
			{"the first heartbeat has no id", answer(next, 1, 0), 11},
			{"the next one is fenced", answer(request{key: kmsg.ConsumerGroupHeartbeat, member: "a"}, 4, kerr.FencedMemberEpoch.Code), 0},
		}},
		{"KIP-848", []step{
			{"the first heartbeat joins", answer(next, 1, 0), 11},
			{"each one renews", answer(next, 4, 0), 14},
			{"the epoch is over", answer(next, 7, kerr.FencedMemberEpoch.Code), 0},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			expelled := 0
			m := newMembership(session, rebalance, func(n int) { expelled = n })
			start := time.Now()
			at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
			for _, s := range test.steps {
				s.do(m, at)
				if got := until(m, start); got != s.want {
					t.Errorf("%s: got a lapse after %d s, want %d", s.reason, got, s.want)
				}
			}
			if want := map[string]int{"expelled": 2, "expelled while joining": 1, "another's": 1, "KIP-848": 1, "KIP-848 with the id from the coordinator": 1, "KIP-848 and fenced at once": 1}[test.name]; expelled != want {
				t.Errorf("got %d expulsions, want %d", expelled, want)
			}
		})
	}
}

// A JoinGroup of a member is pending from when it is written until it is answered, its
// connection fails, or the membership ends.
func TestWhenAMemberIsJoining(t *testing.T) {
	join := request{key: kmsg.JoinGroup}
	for _, tt := range []struct {
		reason string
		end    func(m *membership)
		still  bool
	}{
		{"it waits", func(*membership) {}, true},
		{"a heartbeat is answered meanwhile", func(m *membership) { m.answer(request{key: kmsg.Heartbeat}, time.Now(), 0) }, true},
		{"it is answered", func(m *membership) { m.answer(join, time.Now(), 0) }, false},
		{"its connection is gone", func(m *membership) { m.lost(join) }, false},
		{"the coordinator does not know us", func(m *membership) {
			m.answer(request{key: kmsg.Heartbeat}, time.Now(), kerr.UnknownMemberID.Code)
		}, false},
		{"the partitions are lost", func(m *membership) { m.end() }, false},
	} {
		m := newMembership(time.Second, time.Minute, func(int) {})
		m.sent(join)
		if m.joining() {
			t.Errorf("%s: joining before it is a member", tt.reason)
		}
		m.answer(request{key: kmsg.SyncGroup}, time.Now(), 0)
		m.sent(request{key: kmsg.Heartbeat})
		if m.joining() {
			t.Errorf("%s: joining by a heartbeat", tt.reason)
		}
		<-m.synced
		m.sent(join)
		tt.end(m)
		if m.joining() != tt.still {
			t.Errorf("%s: got joining %v, want %v", tt.reason, m.joining(), tt.still)
		}
	}
}

// The client sends heartbeats neither while a member's JoinGroup is pending nor while a
// SyncGroup is, and the first one a while after that.
func TestWhenHeartbeatsAreDue(t *testing.T) {
	join, sync := request{key: kmsg.JoinGroup}, request{key: kmsg.SyncGroup}
	m := newMembership(time.Hour, 2*time.Hour, func(int) {})
	for _, s := range []struct {
		reason      string
		do          func()
		silent, due bool
	}{
		{"who joins for the first time is not known", func() { m.sent(join) }, false, false},
		{"between its answer and SyncGroup", func() { m.answer(join, time.Now(), 0) }, false, false},
		{"SyncGroup waits for the leader's", func() { m.sent(sync) }, true, false},
		{"the leader is gone", func() { m.answer(sync, time.Now(), kerr.RebalanceInProgress.Code) }, false, false},
		{"a member joins", func() { m.sent(join) }, true, false},
		{"its answer", func() { m.answer(join, time.Now(), 0) }, false, false},
		{"SyncGroup again", func() { m.sent(sync) }, true, false},
		{"its connection is gone", func() { m.lost(sync) }, false, false},
		{"SyncGroup once more", func() { m.sent(sync) }, true, false},
		{"its answer", func() { m.answer(sync, time.Now(), 0) }, false, true},
		{"a heartbeat's", func() { m.answer(request{key: kmsg.Heartbeat}, time.Now(), 0) }, false, false},
		{"two of them before anybody looks", func() { m.answer(sync, time.Now(), 0); m.answer(sync, time.Now(), 0) }, false, true},
		{"SyncGroup of one that is unknown", func() { m.sent(sync); m.answer(sync, time.Now(), kerr.UnknownMemberID.Code) }, false, false},
	} {
		s.do()
		due := false
		select {
		case <-m.synced:
			due = true
		default:
		}
		if silent := m.silent(time.Now()); silent != s.silent || due != s.due {
			t.Errorf("%s: got silent %t, due %t, want %t, %t", s.reason, silent, due, s.silent, s.due)
		}
	}
	m.sent(sync)
	for _, s := range []struct {
		reason string
		after  time.Duration
		silent bool
	}{
		{"the leader's session may have to end", 59 * time.Minute, true},
		{"SyncGroup was lost, and others wait", 61 * time.Minute, false},
	} {
		if got := m.silent(time.Now().Add(s.after)); got != s.silent {
			t.Errorf("%s: got silent %t, want %t", s.reason, got, s.silent)
		}
	}
	m.lost(sync)
	sync.leads = true
	if m.sent(sync); m.silent(time.Now()) {
		t.Error("a leader whose SyncGroup is lost is heard of")
	}
}

// Members join one after another, each while the one before has not been given its
// assignment. No rebalance takes long, and each JoinGroup is answered.
func TestRebalancesThatFollowOneAnotherLapseNoLease(t *testing.T) {
	m := newMembership(10*time.Second, 60*time.Second, func(int) {})
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	join, sync := request{key: kmsg.JoinGroup}, request{key: kmsg.SyncGroup}
	m.answer(sync, at(0), 0)
	for round := range 4 {
		m.sent(join)
		for s := range 21 { // a member drains
			now := at(round*21 + s)
			m.answer(request{key: kmsg.Heartbeat}, now, kerr.RebalanceInProgress.Code)
			if m.lease.Lapsed(now) {
				t.Fatalf("lapsed in rebalance %d, %d s after it began", round+1, s)
			}
		}
		m.answer(join, at(round*21), 0)
		m.sent(sync)
		m.answer(sync, at(round*21+20), kerr.RebalanceInProgress.Code) // the next one joins
	}
}
