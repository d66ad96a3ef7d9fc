package pipeline

import (
	"testing"
	"time"
)

func TestLease(t *testing.T) {
	now := time.Now()
	l := NewLease()
	step := func(what string, lapsed bool) {
		t.Helper()
		if l.Lapsed(now) != lapsed {
			t.Errorf("%s: lapsed is %v", what, !lapsed)
		}
	}
	step("before the first answer", true)
	l.Extend(now.Add(10 * time.Second))
	step("extended", false)
	l.Extend(now.Add(time.Second))
	now = now.Add(5 * time.Second)
	step("an older answer that comes later moves nothing back", false)
	now = now.Add(6 * time.Second)
	step("past its deadline", true)
	l.Extend(now.Add(time.Second))
	step("heard again", false)
	l.End()
	step("lost", true)
	l.Extend(now.Add(time.Second))
	step("joined again", false)
}
