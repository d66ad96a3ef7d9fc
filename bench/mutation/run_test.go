package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func reader(text string) io.Reader { return strings.NewReader(text) }

// module is a small one: what its tests see and what they do not is known.
var module = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26.0\n",
	"seen/seen.go": `package seen

func More(a, b int) bool { return a > b }

func Unreached(a int) int { return a * 2 }

func Endless(n int) (sum int) {
	for i := 0; i < n; i++ {
		sum += i
	}
	return sum
}
`,
	"seen/seen_test.go": `package seen

import "testing"

func TestMore(t *testing.T) {
	if !More(2, 1) || More(1, 2) {
		t.Error("more")
	}
}

func TestEndless(t *testing.T) {
	if Endless(4) != 6 {
		t.Error("sum")
	}
}

func TestThatSkips(t *testing.T) { t.Skip("wants a server") }

func TestThatFails(t *testing.T) { t.Error("for -skip") }
`,
	"accepted.txt": "seen/seen.go Unreached\n- func Unreached(a int) int { return a * 2 }\n+ func Unreached(a int) int { return *new(int) }\nnobody calls it\n",
}

// A run over all mutants of a package says of each what is true: killed by the
// test that notices, survived at the boundary that no test tries, survived where
// no test comes, accepted where the list says so.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a package three times")
	}
	root := t.TempDir()
	for name, text := range module {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")

	var out, progress bytes.Buffer
	err := command(t.Context(), []string{"-accepted", "accepted.txt", "-json", "-skip", "Fails$", "seen"}, &out, &progress)
	if !errors.Is(err, errBelow) {
		t.Fatalf("ended with %v\n%s", err, &progress)
	}
	var sum summary
	if err := json.Unmarshal(out.Bytes(), &sum); err != nil {
		t.Fatal(err)
	}
	var survivors []string
	for _, o := range sum.Survivors {
		survivors = append(survivors, strings.TrimSpace(o.After)+" # "+o.Reason)
	}
	for _, want := range []string{
		"func More(a, b int) bool { return a >= b } # ",
		"func Unreached(a int) int { return a - 2 } # ",
		"func Unreached(a int) int { return *new(int) } # nobody calls it",
	} {
		if !strings.Contains(strings.Join(survivors, "\n"), want) {
			t.Errorf("did not survive: %s", want)
		}
	}
	// More: boundary, negation, zero value; Unreached: *, zero value; Endless:
	// boundary, negation, +=, zero value.
	if sum.Sampled != 9 || sum.Sites != 9 || sum.Killed != 6 || len(sum.Survivors) != 3 || int(sum.Percent) != 66 {
		t.Errorf("found %d sampled of %d, %d killed, %.0f %%, survivors:\n%s", sum.Sampled, sum.Sites, sum.Killed, sum.Percent, strings.Join(survivors, "\n"))
	}
	if len(sum.Skipped) != 1 || sum.Skipped[0] != "TestThatSkips" {
		t.Errorf("says that these skip themselves: %q", sum.Skipped)
	}
	for _, want := range []string{"1 tests skip themselves here", "seen.go:3 negation", "killed by TestMore", "killed by TestEndless", "SURVIVED, accepted", "no test reaches it"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("progress does not say %q:\n%s", want, &progress)
		}
	}
	if src, err := os.ReadFile("seen/seen.go"); err != nil || string(src) != module["seen/seen.go"] {
		t.Errorf("the tree was changed: %v", err)
	}

	// The same with a sample: a function of the seed, no more than asked for.
	out.Reset()
	if err := command(t.Context(), []string{"-accepted", "accepted.txt", "-n", "1", "-seed", "3", "-skip", "Fails$", "./seen"}, &out, io.Discard); err != nil && !errors.Is(err, errBelow) {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "of 1 mutants killed") || !strings.Contains(out.String(), "seed 3, drawn from 9") {
		t.Errorf("said:\n%s", &out)
	}

	// A test that fails by itself would kill everything.
	err = command(t.Context(), []string{"-accepted", "accepted.txt", "./seen"}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "TestThatFails fails without a change") {
		t.Errorf("with a test that fails: %v", err)
	}
}
