package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// configuration writes a file in which `config check` finds no problem.
func configuration(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	account, path := filepath.Join(dir, "account.json"), filepath.Join(dir, "worker.yaml")
	text := "apps: [{name: shop, fcm: {project: example-shop, service_account_file: " + account + "}}]\n" + more
	for name, content := range map[string]string{account: "{}", path: text} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// The file can be given as an argument, as in the comment of
// configs/worker.yaml, or by --config, as in every other command.
func TestConfigNamesItsFileEitherWay(t *testing.T) {
	path := configuration(t, "send: {in_flight: 1234}\n")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"config", "check", path}, exitDone, "ok: 3 lanes, 1 apps"},
		{[]string{"config", "check", "--config", path}, exitDone, "ok: 3 lanes, 1 apps"},
		{[]string{"config", "check", "--config", path, path}, exitDone, "ok: 3 lanes, 1 apps"},
		{[]string{"config", "print", path}, exitDone, "in_flight: 1234"},
		{[]string{"config", "print", "-c", path}, exitDone, "in_flight: 1234"},
		{[]string{"config", "check", "--config", path, "other.yaml"}, exitUsage, "two different files"},
		{[]string{"config", "check", path, path}, exitUsage, "accepts at most 1 arg"},
		{[]string{"config", "check", "none.yaml"}, exitUsage, "none.yaml"},
	} {
		var out bytes.Buffer
		if code := execute(tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%q: exit %d, says\n%s\nwant exit %d and %q", tt.args, code, &out, tt.code, tt.want)
		}
	}
}

// Notes on valid settings follow the line "ok".
func TestConfigCheckPrintsNotes(t *testing.T) {
	path := configuration(t, "dedupe: {window: 24h}\nlanes: [{name: a, topic: a}, {name: b, topic: b, critical_senders: [auth]}, {name: c, topic: c, critical_senders: ['*']}]\n")
	var out, errs bytes.Buffer
	if code := execute([]string{"config", "check", path}, &out, &errs); code != exitDone {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "note: lanes[0].critical_senders: is empty") ||
		!strings.HasPrefix(lines[2], "note: lanes[2].critical_senders: allows every sender") {
		t.Errorf("it says\n%s", &out)
	}
}

// Control characters in a configuration file do not reach the terminal.
func TestOutputIsCleaned(t *testing.T) {
	path := configuration(t, "kafka: {client_id: \"\\u202E\\u009B\\e[2J\"}\n")
	var out, errs bytes.Buffer
	if code := execute([]string{"config", "print", path}, &out, &errs); code != exitDone {
		t.Fatal(errs.String())
	}
	execute([]string{"config", "check", "\x1b[2J\u202e"}, &out, &errs)
	if s := out.String() + errs.String(); !strings.Contains(s, "client_id") || strings.ContainsAny(s, "\x1b\u202e\u009b") {
		t.Errorf("it prints %q", s)
	}
}

// Rules are tried as the worker would put them in force: these two apps have the same
// hash in users' states.
func TestConfigCheckTriesTheRules(t *testing.T) {
	for _, tt := range []struct {
		app  string
		code int
		want string
	}{
		{"bank", exitDone, "ok: 3 lanes, 2 apps"},
		{"app14280", exitUsage, "rule hourly: app shop has the hash of app app14280"},
	} {
		path := configuration(t, "limits: {state_version: 2, rules: [{name: hourly, per: user, max: 1, window: 1h, apps: [shop]}]}\n")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		account := filepath.Join(filepath.Dir(path), "account.json")
		two := strings.Replace(string(text), "apps: [", "apps: [{name: "+tt.app+", fcm: {project: example, service_account_file: "+account+"}}, ", 1)
		if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code := execute([]string{"config", "check", path}, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("shop and %s: exit %d, says\n%s\nwant exit %d and %q", tt.app, code, &out, tt.code, tt.want)
		}
	}
}
