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

// What a worker reads again must be what it could start with. A file that is empty for
// the moment in which it is written says that there are no limits, and a worker that
// believed it would send without any.
func TestWhatIsReadAgainCouldBeStartedWith(t *testing.T) {
	path := configuration(t, "limits: {rules: [{name: hour, per: user, max: 2, window: 1h}]}\n")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why, text, want string // in the error; empty = none
	}{
		{"as it was written", string(whole), ""},
		{"emptied, to be written anew", "", "apps"},
		{"a key file that is not there", strings.Replace(string(whole), "account.json", "none.json", 1), "apps[0].fcm.service_account_file"},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := loadToRun(path)
		switch {
		case (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v, want %q in it", tt.why, err, tt.want)
		case err == nil && len(c.Limits.Rules) != 1:
			t.Errorf("%s: %d rules, want 1", tt.why, len(c.Limits.Rules))
		}
	}
}
