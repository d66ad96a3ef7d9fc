package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrongUsageAndConfiguration(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		why  string
		args []string
		want string // in the error text
	}{
		{"unknown command", []string{"walk"}, `unknown command "walk"`},
		{"unknown flag", []string{"run", "--nope"}, "--nope"},
		{"the former command of the demo", []string{"demo", "-n", "5", "--json"}, "pushworker: moved to a program of its own: pushdemo, or make demo\n"},
		{"no such file", []string{"run", "--config", filepath.Join(dir, "none.yaml")}, "none.yaml"},
		{"unknown key", []string{"run", "--config", write("unknown.yaml", "kafka: {brokerz: [a]}\n")}, "kafka.brokerz"},
		{"contradiction", []string{"registry", "--config", write("drain.yaml", "send: {deadline: 50s}\n")}, "send.drain"},
		{"no apps", []string{"run", "--config", write("empty.yaml", "{}\n")}, "apps"},
		{"a missing key file", []string{"config", "check", "--config", write("key.yaml",
			"apps: [{name: shop, fcm: {project: example-shop, service_account_file: "+filepath.Join(dir, "none.json")+"}}]\n")}, "apps[0].fcm.service_account_file"},
	} {
		var out, errs bytes.Buffer
		if code := execute(tt.args, &out, &errs); code != exitUsage {
			t.Errorf("%s: exit %d, want %d", tt.why, code, exitUsage)
		}
		if !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%s: says %q, want %q in it", tt.why, errs.String(), tt.want)
		}
	}
}

func TestConfigPrint(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute([]string{"config", "print"}, &out, &errs); code != exitDone || !strings.Contains(out.String(), "session_timeout: 10s") {
		t.Errorf("exit %d, printed %q %q", code, out.String(), errs.String())
	}
}
