package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestAcceptedNamesCode: an entry of a change that can no longer be made excuses
// nothing, and hides that the code which took its place was never judged.
func TestAcceptedNamesCode(t *testing.T) {
	f, err := os.Open("accepted.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := readAccepted(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("accepted.txt has no entries")
	}
	gone, err := list.stale(func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range gone {
		t.Errorf("%s %s: no such change can be made any more\n- %s\n+ %s", k.file, k.fn, k.before, k.after)
	}
}

func TestStale(t *testing.T) {
	files := map[string]string{"a/b.go": "package a\n\nfunc (x *T) f(a, b int) bool {\n\tif a < b {\n\t\tx.g()\n\t}\n\treturn a == 1\n}\n"}
	read := func(name string) ([]byte, error) {
		if src, is := files[name]; is {
			return []byte(src), nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	for _, row := range []struct {
		why   string
		key   acceptedKey
		stale bool
	}{
		{"as it is", acceptedKey{"a/b.go", "T.f", "if a < b {", "if a <= b {"}, false},
		{"a statement that is gone", acceptedKey{"a/b.go", "T.f", "x.g()", "(nothing)"}, false},
		{"no such file", acceptedKey{"a/c.go", "T.f", "if a < b {", "if a <= b {"}, true},
		{"no such function", acceptedKey{"a/b.go", "f", "if a < b {", "if a <= b {"}, true},
		{"no such line", acceptedKey{"a/b.go", "T.f", "if a < c {", "if a <= c {"}, true},
		{"a change that is not made", acceptedKey{"a/b.go", "T.f", "if a < b {", "if a > b {"}, true},
	} {
		gone, err := accepted{row.key: "why"}.stale(read)
		if err != nil || slices.Contains(gone, row.key) != row.stale {
			t.Errorf("%s: got %v (error %v), want stale %v", row.why, gone, err, row.stale)
		}
	}
	refuses := func(string) ([]byte, error) { return nil, fs.ErrPermission }
	if _, err := (accepted{{file: "a/b.go"}: "why"}).stale(refuses); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a file that cannot be read: got %v", err)
	}
}

// stale returns the entries of which no mutant of today's code is known. A file that
// is gone has none.
func (a accepted) stale(read func(name string) ([]byte, error)) (gone []acceptedKey, err error) {
	known := map[string]map[acceptedKey]bool{} // by file
	for k := range a {
		if known[k.file] == nil {
			known[k.file] = map[acceptedKey]bool{}
			src, err := read(k.file)
			if errors.Is(err, fs.ErrNotExist) {
				src = []byte("package none")
			} else if err != nil {
				return nil, err
			}
			found, err := mutants(k.file, src)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", k.file, err)
			}
			for _, m := range found {
				known[k.file][acceptedKey{m.File, m.Func, m.Before, m.After}] = true
			}
		}
		if !known[k.file][k] {
			gone = append(gone, k)
		}
	}
	return gone, nil
}
