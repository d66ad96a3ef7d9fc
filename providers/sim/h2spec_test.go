package sim_test

import (
	"encoding/xml"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/providers/sim"
)

const (
	h2specCases = 146 // of h2spec 2.6.0
	h2specBar   = 145 // of them have to pass
)

// h2specReport is what h2spec writes as a JUnit report.
type h2specReport struct {
	Suites []struct {
		Section string `xml:"package,attr"`
		Cases   []struct {
			Name    string  `xml:"classname,attr"`
			Failure *string `xml:"failure"`
			Error   *string `xml:"error"`
			Skipped *string `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// h2spec judges HTTP/2 servers by the RFCs. Its module of its own keeps the
// pinned version, and its dependencies are none of ours.
func TestH2Spec(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "h2spec")
	build := exec.Command("go", "build", "-C", filepath.Join("..", "..", "bench", "h2spec"), "-o", tool, "github.com/summerwind/h2spec/cmd/h2spec")
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building h2spec: %v\n%s", err, out)
	}
	for mode, o := range map[string]sim.Options{"validated": {}, "raw": {Raw: true}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, _ := start(t, o)
			passed, complaints := h2spec(t, tool, strings.TrimPrefix(s.URL(), "https://"))
			if all := passed + len(complaints); all != h2specCases || passed < h2specBar {
				t.Errorf("%d of %d cases passed, want %d of %d; the others:\n%s", passed, all, h2specBar, h2specCases, strings.Join(complaints, "\n"))
			}
		})
	}
}

// h2spec runs all cases against a server, and says of each that did not pass
// what it was.
func h2spec(t *testing.T, tool, address string) (passed int, complaints []string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.xml")
	// The answers there have bodies, which many cases need. A run with
	// failing cases ends in status 1: the report counts.
	out, err := exec.Command(tool, "--tls", "--insecure", "--host", host, "--port", port, "--path", "/v1/projects/p/messages:send", "--timeout", "10", "--junit-report", file).CombinedOutput()
	text, missing := os.ReadFile(file)
	if missing != nil {
		t.Fatalf("h2spec wrote no report: %v, %v\n%s", err, missing, out)
	}
	var report h2specReport
	if err := xml.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			if c.Failure == nil && c.Error == nil && c.Skipped == nil {
				passed++
				continue
			}
			how := "skipped"
			for _, text := range []*string{c.Failure, c.Error} {
				if text != nil {
					how = strings.Join(strings.Fields(*text), " ")
				}
			}
			complaints = append(complaints, fmt.Sprintf("%s: %s: %s", suite.Section, c.Name, how))
		}
	}
	return passed, complaints
}
