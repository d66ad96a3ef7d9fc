package client

import "testing"

// What is in a path is one step of it, whatever it is.
func TestPaths(t *testing.T) {
	for _, tt := range []struct{ why, name, want string }{
		{"letters", "u42", "/v1/users/u42/inbox"},
		{"a slash", "a/b", "/v1/users/a%2Fb/inbox"},
		{"what ends a path", "a?b#c", "/v1/users/a%3Fb%23c/inbox"},
		{"a percent sign", "%2F", "/v1/users/%252F/inbox"},
		{"another alphabet", "ü", "/v1/users/%C3%BC/inbox"},
		{"a step upwards", "..", "/v1/users/%2E%2E/inbox"},
		{"a step to nowhere", ".", "/v1/users/%2E/inbox"},
		{"three dots are a name", "...", "/v1/users/.../inbox"},
		{"what a pattern has", "{}", "/v1/users/%7B%7D/inbox"},
	} {
		if got := at("/v1/users/{}/inbox", tt.name); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
	}
	if got := at("/v1/topics/{}/subscriptions/{}", "{}", "u"); got != "/v1/topics/%7B%7D/subscriptions/u" {
		t.Errorf("two names: %s", got)
	}
	if got := query(map[string]string{"a": "", "b": "x&y"}, map[string]int{"n": 0, "m": 7}); got != "?b=x%26y&m=7" {
		t.Errorf("a query: %s", got)
	}
	if got := query(map[string]string{"a": ""}, nil); got != "" {
		t.Errorf("no query: %s", got)
	}
}
