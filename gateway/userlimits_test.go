package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// counted are limits of users that were asked about lanes.
type counted struct {
	of    map[string][]LimitUse // by lane
	asked []string              // of the last question: user, app, type, lanes
	err   error
}

func (c *counted) Uses(_ context.Context, user, app, messageType string, lanes []string) ([][]LimitUse, error) {
	c.asked = append([]string{user, app, messageType}, lanes...)
	uses := make([][]LimitUse, len(lanes))
	for i, l := range lanes {
		uses[i] = c.of[l]
	}
	return uses, c.err
}

func TestLimitsOfUsers(t *testing.T) {
	free := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	c := &counted{of: map[string][]LimitUse{
		"transactional": {{Rule: "per-day", Per: "user", Used: 5, Limit: 5, FreeAt: free, ResetAt: free}, {Rule: "none", Per: "device_type", Device: "q83vASNFZ4mrze8B"}},
		"critical":      {{Rule: "per-hour", Per: "user_type", Used: 1, Limit: 3, FreeAt: time.Now().Add(-time.Second), ResetAt: free}},
	}}
	w := newWorld(t, func(o *Options) { o.UserLimits = c })
	ask := func(key, query string) *reply {
		t.Helper()
		return w.do(request{method: "GET", path: "/v1/users/u42/limits?" + query, key: key})
	}
	a := ask(keyLogins, "app=shop&type=news")
	list, _ := a.json["limits"].([]any)
	if a.status != http.StatusOK || len(list) != 3 || !slices.Equal(c.asked, []string{"u42", "shop", "news", "critical", "transactional"}) {
		t.Fatalf("asked %v: %d %s", c.asked, a.status, a.text)
	}
	for i, want := range []struct {
		service, rule, meaning string
		reached, free          bool
	}{
		{"otp", "per-hour", "1 of 3 used", false, false},
		{"transactional", "per-day", "reached: 5 of 5, free again at " + free.Format(time.RFC3339), true, true},
		{"transactional", "none", "reached: 0 of 0, and nothing is let through", true, false},
	} {
		l := list[i].(map[string]any)
		if _, free := l["free_at"]; l["service_type"] != want.service || l["rule"] != want.rule || l["meaning"] != want.meaning || l["reached"] != want.reached || free != want.free {
			t.Errorf("%v, want %+v", l, want)
		}
	}
	if a := ask(keyLogins, "app=shop&service_type=otp"); a.status != http.StatusOK || a.string("type") != "default" || !slices.Equal(c.asked, []string{"u42", "shop", "default", "critical"}) {
		t.Errorf("of one service type, asked %v: %s", c.asked, a.text)
	}
	for query, code := range map[string]string{
		"": "invalid_field", "app=bank": "foreign_app", "app=unconfigured": "unknown_app", "app=shop&service_type=gone": "invalid_field", "app=shop&app=shop": "bad_request", "app=shop&lane=x": "bad_request",
		"app=shop&type=" + strings.Repeat("t", 65): "invalid_field", "app=%zz": "bad_request",
	} {
		if a := ask(keyLogins, query); a.code() != code {
			t.Errorf("%q: %d %s, want %s", query, a.status, a.text, code)
		}
	}
	if a := ask(keyOrders, "app=shop"); a.code() != "forbidden" {
		t.Errorf("without the right: %s", a.text)
	}
	c.err = errors.New("away")
	if a := ask(keyLogins, "app=shop"); a.code() != "registry_away" {
		t.Errorf("it is away: %s", a.text)
	}
	if a := newWorld(t).do(request{method: "GET", path: "/v1/users/u42/limits?app=shop", key: keyLogins}); a.code() != "not_configured" {
		t.Errorf("without a registry: %s", a.text)
	}
}
