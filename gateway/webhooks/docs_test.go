package webhooks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const page = "../../docs/webhooks.md"

// The program of the page tells what we have signed from what we have not.
func TestTheVerifierOfThePage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, code, ok := strings.Cut(string(text), "```go\n")
	code, _, end := strings.Cut(code, "```")
	if !ok || !end {
		t.Fatal("the page has no program")
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "verify.go"), filepath.Join(dir, "verify")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	keyA, _ := ParseSecret(secretA)
	keyB, _ := ParseSecret(secretB)
	at := time.Unix(1614265330, 0)
	for what, tt := range map[string]struct {
		signature, body string
		want            bool
	}{
		"ours":                {Sign([][]byte{keyA}, "id", at, []byte("{}")), "{}", true},
		"one of two":          {Sign([][]byte{keyB, keyA}, "id", at, []byte("{}")), "{}", true},
		"another secret":      {Sign([][]byte{keyB}, "id", at, []byte("{}")), "{}", false},
		"another id":          {Sign([][]byte{keyA}, "ie", at, []byte("{}")), "{}", false},
		"another time":        {Sign([][]byte{keyA}, "id", at.Add(time.Second), []byte("{}")), "{}", false},
		"another body":        {Sign([][]byte{keyA}, "id", at, []byte("{}")), "{ }", false},
		"without its version": {strings.TrimPrefix(Sign([][]byte{keyA}, "id", at, []byte("{}")), "v1,"), "{}", false},
		"none":                {"", "{}", false},
	} {
		cmd := exec.CommandContext(t.Context(), program, secretA, "id", strconv.FormatInt(at.Unix(), 10), tt.signature)
		cmd.Stdin = strings.NewReader(tt.body)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != strconv.FormatBool(tt.want) {
			t.Errorf("%s: %v, %s", what, err, out)
		}
	}
}

// The page names all metrics and reasons.
func TestThePageNamesAll(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	NewMetrics(reg, []string{"orders"}).called("orders", &Answer{}, 0)
	families, err := reg.Gather()
	if err != nil || len(families) != 5 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, f := range families {
		if !regexp.MustCompile("`" + f.GetName() + `\{`).Match(text) {
			t.Errorf("%s is not on the page", f.GetName())
		}
	}
	for _, why := range Reasons() {
		if !strings.Contains(string(text), "`"+string(why)+"`") {
			t.Errorf("the reason %s is not on the page", why)
		}
	}
	for _, result := range results {
		if !strings.Contains(string(text), "`"+result+"`") {
			t.Errorf("the result %s is not on the page", result)
		}
	}
}
