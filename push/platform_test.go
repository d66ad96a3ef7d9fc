package push

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The table is complete: each platform has everything that is required of one.
func TestPlatforms(t *testing.T) {
	names, n := map[string]bool{}, 0
	for p := range Platforms {
		n++
		if back, ok := ParsePlatform(p.String()); !ok || back != p || names[p.String()] || !p.Known() {
			t.Errorf("%d is called %q, by which %d is found, %v", p, p, back, ok)
		}
		names[p.String()] = true
		if p.Channel() == "" {
			t.Errorf("%s carries no channel's messages", p)
		}
		if p.TokenGrammar() == "" || p.TokenFault("") == "" || strings.Contains(p.TokenFault("a secret!"), "secret") {
			t.Errorf("%s: the empty token is %q, one with a blank %q", p, p.TokenFault(""), p.TokenFault("a secret!"))
		}
		for _, e := range p.Environments() {
			if got, ok := p.Environment(e); got != e || !ok || !IsEnvironment(e) {
				t.Errorf("%s in %s: %q, %v", p, e, got, ok)
			}
		}
	}
	if n != len(platforms)-1 {
		t.Errorf("%d platforms, and the last number is %d", n, len(platforms)-1)
	}
	first := 0
	for range Platforms {
		first++
		break
	}
	if first != 1 {
		t.Error("who has seen enough gets more")
	}
}

// An unknown number or name is harmless.
func TestUnknownPlatforms(t *testing.T) {
	for _, p := range []Platform{NoPlatform, Platform(len(platforms)), 255} {
		if _, ok := p.Environment(""); p.Known() || p.String() != "none" || p.TokenFault("abc") == "" || len(p.Environments()) > 0 || !ok {
			t.Errorf("%d: known %v, %q, %q", p, p.Known(), p, p.TokenFault("abc"))
		}
	}
	for _, name := range []string{"", "none", "APNS", "hms"} {
		if p, ok := ParsePlatform(name); ok {
			t.Errorf("%q is %v", name, p)
		}
	}
}

func TestEnvironments(t *testing.T) {
	for _, tt := range []struct {
		p           Platform
		given, want string
		ok          bool
	}{
		{APNS, "", Production, true},
		{APNS, Sandbox, Sandbox, true},
		{APNS, "test", "test", false},
		{FCM, "", "", true},
		{FCM, Production, Production, false},
	} {
		if got, ok := tt.p.Environment(tt.given); got != tt.want || ok != tt.ok {
			t.Errorf("%v in %q: %q %v, want %q %v", tt.p, tt.given, got, ok, tt.want, tt.ok)
		}
	}
	if IsEnvironment("") || IsEnvironment("test") {
		t.Error("what no platform has is an environment")
	}
}

// The token grammars at their limits (docs: users' topic).
func TestTokenFaults(t *testing.T) {
	hex := strings.Repeat("aF", 32)
	for _, tt := range []struct {
		p     Platform
		token string
		fine  bool
	}{
		{APNS, hex, true}, {APNS, hex[:62], false}, {APNS, hex + "0", false}, {APNS, hex + "0g", false},
		{APNS, strings.Repeat("09", 256), true}, {APNS, strings.Repeat("09", 257), false},
		{FCM, "a:B_9-%", true}, {FCM, "a/b", false}, {FCM, "a b", false},
		{FCM, strings.Repeat("x", 4096), true}, {FCM, strings.Repeat("x", 4097), false},
	} {
		if fault := tt.p.TokenFault(tt.token); (fault == "") != tt.fine {
			t.Errorf("%v, %d characters: %q", tt.p, len(tt.token), fault)
		}
	}
}

// The pages about platforms name all of them.
func TestPagesNameEveryPlatform(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if want := `"platform": { "enum": ["` + PlatformNames(`", "`) + `"] }`; !strings.Contains(read("../docs/message.schema.json"), want) {
		t.Errorf("docs/message.schema.json has no %s", want)
	}
	if want := "`platform` (`" + PlatformNames("` or `") + "`)"; !strings.Contains(read("../docs/messages.md"), want) {
		t.Errorf("docs/messages.md has no %s", want)
	}
	if want := "`platform` (" + PlatformNames(" or ") + ")"; !strings.Contains(read("../docs/pushctl.md"), want) {
		t.Errorf("docs/pushctl.md has no %s", want)
	}
	if want := "| `provider` | `" + PlatformNames("` or `") + "`;"; !strings.Contains(read("../docs/events.md"), want) {
		t.Errorf("docs/events.md has no %s", want)
	}
	var numbers []string
	for p := range Platforms {
		numbers = append(numbers, fmt.Sprintf("%d %s", p, p))
	}
	if want := "provider     " + strings.Join(numbers, ", ") + "\n"; !strings.Contains(read("../deploy/cassandra/schema.cql"), want) {
		t.Errorf("deploy/cassandra/schema.cql has no %q", want)
	}
}
