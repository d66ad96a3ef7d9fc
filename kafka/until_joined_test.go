package kafka

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup has its time from when the client can send it, however late that is.
func TestWhoStopsWhileItJoinsHasTimeToLeave(t *testing.T) {
	for _, joining := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSource(*options(nil), slog.New(slog.DiscardHandler))
			s.member.answer(request{key: kmsg.SyncGroup}, time.Now(), 0)
			join := request{key: kmsg.JoinGroup}
			if joining {
				s.member.sent(join)
			}
			ctx, stop := context.WithCancel(t.Context())
			leaving, cancel := s.untilJoined(ctx)
			defer cancel()
			ended := func(what string, want bool) {
				t.Helper()
				synctest.Wait()
				if got := leaving.Err() != nil; got != want {
					t.Errorf("joining %v, %s: ended %v, want %v", joining, what, got, want)
				}
			}
			time.Sleep(time.Hour)
			ended("before ctx ends", false)
			stop()
			if joining {
				time.Sleep(time.Hour)
				ended("long after ctx, but the JoinGroup is pending", false)
				s.member.answer(join, time.Now(), 0)
				time.Sleep(recheck)
			}
			time.Sleep(leaveFor / 2)
			ended("LeaveGroup is sent", false)
			time.Sleep(leaveFor)
			ended("LeaveGroup has had its time", true)
		})
	}
}

// Who has left waits for nothing more, even if the JoinGroup is never answered.
func TestWhoHasLeftDoesNotWaitForTheJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(*options(nil), slog.New(slog.DiscardHandler))
		s.member.answer(request{key: kmsg.SyncGroup}, time.Now(), 0)
		s.member.sent(request{key: kmsg.JoinGroup})
		ended, stop := context.WithCancel(t.Context())
		stop()
		leaving, cancel := s.untilJoined(ended)
		synctest.Wait()
		cancel()
		if leaving.Err() == nil {
			t.Error("the context goes on")
		}
	}) // which waits for the goroutine that waited
}
