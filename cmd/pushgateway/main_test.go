package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const key = "orders-orders-orders-orders-orders"

// files writes a configuration in which `config check` finds no problem.
func files(t *testing.T, more string) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var out bytes.Buffer
	if code := execute([]string{"keys", "hash"}, strings.NewReader(key+"\n"), &out, &out); code != exitDone {
		t.Fatal(out.String())
	}
	keys := write("keys.json", `{"keys": [{"name": "a", "sha256": "`+strings.TrimSpace(out.String())+`", "sender": "orders", "apps": ["shop"], "rights": ["send"]}]}`)
	receipts := write("receipts.key", strings.Repeat("r", 32))
	return write("worker.yaml", "apps: [{name: shop, fcm: {project: example-shop, service_account_file: not-opened}}]\n"+
		"gateway: {keys_file: "+keys+", receipts_file: "+receipts+more+"}\n"), dir
}

func TestConfig(t *testing.T) {
	good, dir := files(t, "")
	exposed, _ := files(t, ", listen: '0.0.0.0:8088', insecure: true")
	chosen, _ := files(t, ", lanes: [{service_type: otp, lane: critical}]")
	broken, at := files(t, "")
	if err := os.WriteFile(filepath.Join(at, "keys.json"), []byte(`{"keys": [{"name": "a"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	meshed, by := files(t, "")
	if err := os.WriteFile(filepath.Join(by, "keys.json"), []byte(`{"keys": [{"name": "a", "certificate": "a.example", "sender": "s", "apps": ["shop"], "rights": ["send"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	short, of := files(t, "")
	if err := os.WriteFile(filepath.Join(of, "receipts.key"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	keyed, with := files(t, "")
	if err := os.WriteFile(filepath.Join(with, "receipts.key"), []byte(strings.Repeat("r", 32)+"\nids 2026-12-01T00:00:00Z "+strings.Repeat("i", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why  string
		args []string
		code int
		want string
	}{
		{"all is there", []string{"config", "check", good}, exitDone, "ok: 1 keys, 1 apps, at 127.0.0.1:8088\ncritical, at_least_once: lane critical, topic push.critical\n"},
		{"by the flag", []string{"config", "check", "-c", good}, exitDone, "ok: 1 keys"},
		{"without TLS", []string{"config", "check", exposed}, exitDone, "note: gateway.insecure"},
		{"ids that can be taken", []string{"config", "check", good}, exitDone, "note: gateway.receipts_file: no line ids"},
		{"ids by a secret", []string{"config", "check", keyed}, exitDone, "\nids of Idempotency-Keys: by a secret from 2026-12-01T00:00:00Z on\n"},
		{"callers by certificates, and no CA of theirs", []string{"config", "check", meshed}, exitDone, "note: gateway.keys_file: 1 callers are known by certificates"},
		{"lanes of its own", []string{"config", "check", chosen}, exitDone, "\notp, at_least_once: lane critical, topic push.critical\n"},
		{"two files", []string{"config", "check", "-c", good, "other.yaml"}, exitUsage, "two different files"},
		{"nothing is there", []string{"config", "check", empty}, exitUsage, "gateway.keys_file"},
		{"a key without a hash", []string{"config", "check", broken}, exitUsage, "keys[0].sha256"},
		{"and it is not served", []string{"serve", "-c", broken}, exitUsage, "keys[0].sha256"},
		{"a secret that is too short", []string{"config", "check", short}, exitUsage, "gateway.receipts_file"},
		{"and it is not served", []string{"serve", "-c", short}, exitUsage, "gateway.receipts_file"},
		{"no file", []string{"serve", "-c", "none.yaml"}, exitUsage, "none.yaml"},
		{"no configuration", []string{"serve"}, exitUsage, "apps"},
		{"no fan-outs", []string{"fanout", "-c", good}, exitUsage, "gateway.fanout.enabled"},
		{"help for fan-outs", []string{"fanout", "--help"}, exitDone, "Exit codes: 0 after a signal"},
		{"printed", []string{"config", "print", chosen}, exitDone, "service_type: otp"},
		{"unknown command", []string{"walk"}, exitUsage, "unknown command"},
	} {
		var out bytes.Buffer
		if code := execute(tt.args, strings.NewReader(""), &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit %d, says\n%s\nwant exit %d and %q", tt.why, code, &out, tt.code, tt.want)
		}
	}
}

// The hash is that of the key without its line break, and a key is never printed.
func TestKeysHash(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute([]string{"keys", "hash"}, strings.NewReader(strings.Repeat("a", 32)+"\r\n"), &out, &errs); code != exitDone ||
		out.String() != "3ba3f5f43b92602683c19aee62a20342b084dd5971ddd33808d81a328879a547\n" {
		t.Errorf("exit %d, %s %s", code, &out, &errs)
	}
	for _, wrong := range []string{"", "\n", "hunter2", "hunter2 " + strings.Repeat("x", 40), strings.Repeat("hunter2", 100)} {
		errs.Reset()
		if code := execute([]string{"keys", "hash"}, strings.NewReader(wrong), &out, &errs); code != exitUsage || strings.Contains(errs.String(), "hunter2") {
			t.Errorf("%q: exit %d, %s", wrong, code, &errs)
		}
	}
}
