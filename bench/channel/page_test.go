package channel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root  = "../.."
	title = "## How a channel is added\n"
	// folder is where the page puts the provider; ours stands in beep.
	folder = "providers/beep"
)

// page is the section of DESIGN.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), title)
	if !ok {
		t.Fatalf("DESIGN.md has no %q", title)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

var blocks = regexp.MustCompile("(?ms)^```diff\n--- (\\S+)\n(.*?)^```$")

// patched are the files that the page changes, as they are then, by their paths.
func patched(t *testing.T, section string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, block := range blocks.FindAllStringSubmatch(section, -1) {
		path := block[1]
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if files[path], err = insert(text, block[2]); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	return files
}

// insert adds the lines with a plus behind the line without one that stands
// before them; it may end in "…" for the rest of it.
func insert(text []byte, patch string) ([]byte, error) {
	lines := strings.SplitAfter(string(text), "\n")
	at := -1
	for line := range strings.Lines(patch) {
		if added, ok := strings.CutPrefix(line, "+"); ok {
			if at < 0 {
				return nil, fmt.Errorf("nothing stands before %q", added)
			}
			lines = slices.Insert(lines, at+1, added)
			at++
			continue
		}
		anchor, part := strings.CutSuffix(strings.TrimPrefix(line, " "), "…\n")
		at = -1
		for i, l := range lines {
			if l == anchor || part && strings.HasPrefix(l, anchor) {
				if at >= 0 {
					return nil, fmt.Errorf("%q is there twice", anchor)
				}
				at = i
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("%q is not there", anchor)
		}
	}
	formatted, err := format.Source([]byte(strings.Join(lines, "")))
	if err == nil && string(formatted) != strings.Join(lines, "") {
		err = fmt.Errorf("what the page adds is not as gofmt writes it")
	}
	return formatted, err
}

// overlay writes the changed files, and tells go where they and the provider's
// folder stand.
func overlay(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	out := t.TempDir()
	for path, text := range files {
		to := filepath.Join(out, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(dir, path)] = to
	}
	ours, err := filepath.Glob("beep/*.go")
	if err != nil || len(ours) == 0 {
		t.Fatalf("the provider: %v, %v", ours, err)
	}
	for _, path := range ours {
		replace[filepath.Join(dir, folder, filepath.Base(path))] = filepath.Join(dir, "bench/channel", path)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(out, "overlay.json")
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// A row of the table, a folder and a line of wiring are all that a platform needs:
// the page is carried out, word by word, and the fleet with it goes through
// everything (cmd/pushctl/channel_test.go).
func TestAChannelIsAddedAsThePageSays(t *testing.T) {
	files := patched(t, page(t))
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"push/platform.go", "worker/providers.go"}) {
		t.Errorf("the page changes %v: more than a row and a line of wiring", got)
	}
	if t.Failed() {
		return
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay(t, files), "-tags", "channel", "-vet=off", "-count=1", "-timeout", "10m",
		"-run", "^TestAThirdPlatform$", "-v", "./cmd/pushctl")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestAThirdPlatform ")) {
		t.Errorf("with the third platform: %v", err)
	}
	t.Logf("%s", out)
}

var quoted = regexp.MustCompile("`([a-z_]+(?:/[a-zA-Z_.-]*)+)`")

// Every file that the page names is there.
func TestThePageNamesWhatIsThere(t *testing.T) {
	section := page(t)
	names := quoted.FindAllStringSubmatch(section, -1)
	for _, m := range names {
		path := m[1]
		if path == folder+"/" {
			path = "bench/channel/beep"
		}
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"push/platform.go", folder + "/", "worker/providers.go", "docs/message.schema.json", "docs/messages.md", "docs/pushctl.md", "docs/events.md", "deploy/cassandra/schema.cql"} {
		if !strings.Contains(section, "`"+path+"`") {
			t.Errorf("the page does not name %s", path)
		}
	}
}

// What cannot be carried out is told, and not left out.
func TestAPageThatCannotBeCarriedOut(t *testing.T) {
	const text = "package p\n\nvar a = 1\nvar b = 2\n"
	for _, tt := range []struct{ why, patch, want string }{
		{"no such line", " var c\n+var d = 4\n", "is not there"},
		{"two such lines", " var …\n+var d = 4\n", "is there twice"},
		{"no place", "+var d = 4\n", "nothing stands before"},
		{"no Go", " var b = 2\n+var\n", "expected"},
		{"not formatted", " var b = 2\n+var  d = 4\n", "gofmt"},
	} {
		if _, err := insert([]byte(text), tt.patch); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
	}
	if got, err := insert([]byte(text), " var a…\n+var c = 3\n"); err != nil || string(got) != "package p\n\nvar a = 1\nvar c = 3\nvar b = 2\n" {
		t.Errorf("%q, %v", got, err)
	}
}
