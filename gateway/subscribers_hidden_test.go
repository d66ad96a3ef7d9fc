package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/subscriptions"
)

// longList is topics of which one user has left more than one answer looks through.
type longList struct{ *board }

func (longList) OfUser(_ context.Context, user, after string, limit int) ([]subscriptions.Membership, error) {
	list := []subscriptions.Membership{}
	for i := 0; i < mostReads*mostPage+10 && len(list) < limit; i++ {
		if name := fmt.Sprintf("bank-secret-%06d", i); name > after {
			list = append(list, subscriptions.Membership{Topic: name, App: "bank", Security: subscriptions.Confidential, Subscription: subscriptions.Subscription{User: user}})
		}
	}
	return list, nil
}

// A place to go on from names no topic that its reader may not see.
func TestAPageOfAUsersTopicsNamesNoHiddenOne(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Topics = longList{newBoard()} })
	a := w.do(request{method: "GET", path: "/v1/users/u42/subscriptions", key: keyLogins})
	if a.status != 200 || strings.Contains(a.text, "secret") {
		t.Errorf("%d %s", a.status, a.text)
	}
}
