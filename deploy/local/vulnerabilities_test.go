//go:build unix

package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A vulnerability that is found ends lint, and so does a govulncheck that
// fails; a database that cannot be reached is said to be so and ends nothing.
func TestVulnerabilities(t *testing.T) {
	for _, tt := range []struct {
		name, says, status string
		fails              bool
		want               string
	}{
		{"none", "No vulnerabilities found.", "0", false, ""},
		{"some", "Vulnerability #1: GO-2026-0001", "3", true, "GO-2026-0001"},
		{"no database", "govulncheck: fetching vulnerabilities: Get \"https://vuln.example.com/index\": dial tcp: no such host", "1", false,
			"NOT CHECKED: known vulnerabilities, as their database cannot be reached (https://vuln.example.com)"},
		{"it fails", "govulncheck: loading packages: there are errors", "1", true, "there are errors"},
		{"it fails and speaks of databases", "main.go:1: fetching vulnerabilities: x", "1", true, "govulncheck failed"},
		{"it is not there", "go: no such tool \"govulncheck\"", "2", true, "no such tool"},
	} {
		dir := t.TempDir()
		// A go that is asked for the tool and nothing else.
		fake := "#!/bin/sh\n[ \"$*\" = 'tool govulncheck -db https://vuln.example.com ./...' ] || exit 99\necho '" + tt.says + "' >&2\nexit " + tt.status + "\n"
		if err := os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("./vulnerabilities.sh")
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PUSHFLEET_VULNDB=https://vuln.example.com")
		out, err := cmd.CombinedOutput()
		if fails := err != nil; fails != tt.fails || !strings.Contains(string(out), tt.want) || tt.want == "" && len(out) > 0 {
			t.Errorf("%s: %v\n%s\nwant a failure %v, and %q", tt.name, err, out, tt.fails, tt.want)
		}
	}
}

// The scanner is one of the module's tools, so that its version is pinned, and
// lint calls it.
func TestVulnerabilitiesAreLinted(t *testing.T) {
	for file, want := range map[string]string{"../../go.mod": "\tgolang.org/x/vuln/cmd/govulncheck\n", "lint.sh": "\ndeploy/local/vulnerabilities.sh\n"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q", file, want)
		}
	}
}
