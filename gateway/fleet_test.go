package gateway

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// A key opens the dashboard by the right of that name and for all apps alone: no other right
// says it, and who is for some apps must not see others.
func TestWhoSeesTheFleet(t *testing.T) {
	var keys []string
	for i, k := range []struct{ name, apps, rights string }{
		{"eye", `"shop", "bank", "former"`, `"dashboard"`},
		{"hand", `"bank", "shop"`, `"admin", "dashboard"`},
		{"narrow", `"shop"`, `"dashboard", "admin"`},
		{"service", `"shop", "bank"`, `"send", "read", "users", "admin"`},
	} {
		keys = append(keys, fmt.Sprintf(`{"name": %q, "sha256": "%064x", "sender": "s", "apps": [%s], "rights": [%s]}`, k.name, i, k.apps, k.rights))
	}
	list, err := parseKeys([]byte(`{"keys": [` + strings.Join(keys, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	apps := []string{"shop", "bank"}
	for i, says := range []string{"", "", "the key narrow is not for all apps, and a dashboard shows all: bank missing", `the key service has not the right "dashboard"`} {
		err := list[i].SeesFleet(apps)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", list[i].Name, err, says)
		}
	}
	if list[0].ActsOnFleet() || !list[1].ActsOnFleet() {
		t.Error("who acts is not who has the right admin")
	}
	callers := callersOf(list...)
	if see, act := callers.OfFleet(apps); see != 2 || act != 1 {
		t.Errorf("%d see and %d act, want 2 and 1", see, act)
	}
}

// Sessions are signed by another secret for each key and each file of secrets, and by none
// that signs anything else.
func TestDashboardSecret(t *testing.T) {
	one, err := NewSigner(strings.Repeat("a", 32))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSigner(strings.Repeat("b", 32) + "\n" + strings.Repeat("a", 32))
	if err != nil {
		t.Fatal(err)
	}
	x, y := &Caller{hash: [32]byte{1}}, &Caller{hash: [32]byte{2}}
	secret := one.DashboardSecret(x)
	if len(secret) != macBytes || !bytes.Equal(secret, one.DashboardSecret(x)) {
		t.Errorf("the secret of a key is %x, and then another one", secret)
	}
	for _, not := range [][]byte{one.DashboardSecret(y), other.DashboardSecret(x), one.signed(nil, forPasses, string(x.hash[:]))} {
		if bytes.Equal(secret, not) {
			t.Errorf("%x is the secret of two", secret)
		}
	}
}
