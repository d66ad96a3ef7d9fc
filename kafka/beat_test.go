package kafka

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A heartbeat that was sent for an ended membership, while its JoinGroup was pending, and
// is answered late says nothing about the membership that has begun since.
func TestALateAnswerToAFormerMemberEndsNoNewMembership(t *testing.T) {
	t.Parallel()
	c, h, s, first := leasedMember(t)
	former, _ := s.client.GroupMetadata()
	joining, beating, refuse := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(beating) })
	c.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		close(joining)
		c.SleepControl(func() { <-refuse })
		resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
	h.set(kerr.RebalanceInProgress.Code, nil) // makes it join again
	select {
	case <-joining:
	case <-time.After(patience):
		t.Fatal("the member did not rejoin")
	}
	// From here on heartbeats of the former member are the Source's own.
	h.set(0, nil)
	hold := make(chan struct{})
	h.setFor(former, func() { begun(); <-hold })
	<-beating
	close(refuse)
	eventually(t, "the tracker is fenced", first.Tracker.Draining)
	done(first)
	eventually(t, "a new membership has begun", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sessions > 1 && s.session.member != former
	})
	before := len(h.seen())
	close(hold) // the broker answers UNKNOWN_MEMBER_ID to the former member
	eventually(t, "the new member's heartbeats are answered", func() bool { return len(h.seen()) > before+4 })
	ctx, cancel := context.WithTimeout(t.Context(), 2*leased)
	defer cancel()
	switch again, err := s.Next(ctx); {
	case err != nil:
		s.mu.Lock()
		member, sessions := s.session.member, s.sessions
		s.mu.Unlock()
		now, _ := s.client.GroupMetadata()
		t.Errorf("a member that the group knows reads nothing of its partition any more (%v); the same member still: %v, session %d, heartbeats since: %d", err, member == now, sessions, len(h.seen())-before)
	case again.Tracker.Draining() || again.Tracker.Lapsed(time.Now()):
		t.Error("the new membership has ended by the answer to the former one")
	default:
		done(again)
	}
}
