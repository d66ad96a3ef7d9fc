package invariants

import "testing"

func TestKindsOfTopics(t *testing.T) {
	for topic, want := range map[string]Kind{
		"push.main": 0, "push.main.retry.30s": Retry, "push.main.defer.2h": Deferral, "push.main.hold.apns": Hold, "push.main.dlq": Dead,
		"push.main.dlq.audit": 0, "push.mainly.dlq": 0, "push.users": 0,
	} {
		if got := KindOf("push.main", topic); got != want {
			t.Errorf("%s: got %d, want %d", topic, got, want)
		}
	}
}
