package main

import (
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Each row is the body of a function and the changes that are made to it, as
// they stand in its place, in the order of the text.
func TestMutants(t *testing.T) {
	const head = "package p\nfunc (x *T) f(a, b int, ok bool) (int, error) {\n"
	const headLines = 3
	for _, row := range []struct {
		body string
		want []string
	}{
		{"for a < b {}", []string{"boundary: for a <= b {}", "negation: for a >= b {}"}},
		{"for a >= b {}", []string{"boundary: for a > b {}", "negation: for a < b {}"}},
		{"for a == b {}", []string{"negation: for a != b {}"}},
		{"if ok {}", []string{"negation: if !(ok) {}", "removed if: if false && (ok) {}"}},
		{"for !ok {}", []string{"negation: for ok {}"}},
		{"for ok && y() {}", []string{"logic: for ok || y() {}"}},
		{"if ok {} else {}", []string{"negation: if !(ok) {} else {}"}},
		{"a++", []string{"increment: a--"}},
		{"for ; ; a++ {}", nil}, // would only never end
		{"a -= b", []string{"arithmetic: a += b"}},
		{"c := a + b", []string{"arithmetic: c := a - b"}},
		{"c := int(b) * len(s)", []string{"arithmetic: c := int(b) - len(s)"}},
		{"c := a + z()", nil}, // z would be called twice
		{"const c = 1 + 2", nil},
		{"a = b", []string{"removed statement: (nothing)"}},
		{"_ = b", nil},
		{"x.f(a, 1, ok)", []string{"removed statement: (nothing)"}},
		{"defer z()", []string{"removed statement: (nothing)"}},
		{"x.c <- a", []string{"removed statement: (nothing)"}},
		{"for { continue }", []string{"removed statement: for { }"}},
		{"switch { case ok: z() }", []string{"removed statement: switch { case ok: }"}},
		{"return a, nil", []string{"zero value: return *new(int), nil"}},
		{"return 0, err", []string{"zero value: return 0, *new(error)"}},
		{"return x.f(1, 2, ok)", nil},
		{"c := func() bool { return y() }", []string{"zero value: c := func() bool { return *new(bool) }"}},
		{"c := true", []string{"constant: c := false"}},
		{`x.log.Warn("words", "count", a + b)`, nil},
		{"c := make([]int, a, a + b)", nil},
		{"c := make([]int, a + b)", []string{"arithmetic: c := make([]int, a - b)"}},
		{"c := make(map[int]int, a + b)", nil},
		{"s = make([]int, 0, a)", nil},
		{"s = make([]int, 1, a)", []string{"removed statement: (nothing)"}},
		{"if cap(s) < a { s = make([]int, 0, a) }", nil},
		{"if n := a + b; cap(s) < n { z() }", []string{"removed statement: if n := a + b; cap(s) < n { }"}},
		{"s = slices.Grow(s, a + b)", []string{"removed statement: (nothing)"}},
		{"x.f(a, b, a == b && a < 2)", []string{
			"removed statement: (nothing)", "logic: x.f(a, b, a == b || a < 2)", "negation: x.f(a, b, a != b && a < 2)",
			"boundary: x.f(a, b, a == b && a <= 2)", "negation: x.f(a, b, a == b && a >= 2)"}},
	} {
		src := []byte(head + row.body + "\n}\nconst outside = 2 * 3\n")
		found, err := mutants("p/p.go", src)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		all := map[int]mutant{}
		for i, m := range found {
			all[i] = m
			got = append(got, m.Kind+": "+m.After)
			if m.Line != headLines || m.Func != "T.f" || m.File != "p/p.go" || m.Before != row.body {
				t.Errorf("%s: found as %+v", row.body, m)
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", row.body, got, row.want)
		}
		planted := plant(src, all)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "p.go", planted, 0)
		if err != nil {
			t.Errorf("%s becomes %s: %v", row.body, planted, err)
			continue
		}
		if fset.Position(file.End()).Line != strings.Count(string(src), "\n") {
			t.Errorf("%s becomes %s, of other lines", row.body, planted)
		}
	}
}

// A piece of code in others, each with mutants: every one is whole.
func TestPlant(t *testing.T) {
	src := "package p\nfunc f(a, b int) bool { return a < b && !g() }\n"
	found, err := mutants("p.go", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]mutant{}
	for i, m := range found {
		all[i+7] = m
	}
	want := "package p\nfunc f(a, b int) bool { " +
		"if mutationOn(7) { return *new(bool) }; return " +
		"(mutationOn(8) && (a < b || !g()) || !mutationIs(8) && (" +
		"(mutationOn(10) && (a >= b) || !mutationIs(10) && ((mutationOn(9) && (a <= b) || !mutationIs(9) && (a < b))))" +
		" && (mutationOn(11) && (g()) || !mutationIs(11) && (!g())))) }\n"
	if got := string(plant([]byte(src), all)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What the compiler refuses is told by its line: of a function without an end,
// that of its brace.
func TestRefused(t *testing.T) {
	sample := []mutant{{File: "a/p.go", Line: 3}, {File: "a/p.go", Line: 5}, {File: "a/q.go", Line: 5}, {File: "a/p.go", Line: 5}, {File: "a/p.go", Line: 9}}
	for out, want := range map[string][]int{
		"a/p.go:5:7: mismatched types":                 {1, 3},
		"# m/a\na/p.go:3:1: x\na/q.go:5:2: y\n":        {0, 2},
		"a/p.go:8:1: missing return":                   {1, 3},
		"a/p.go:2:1: nothing of ours":                  nil,
		"a/p_test.go:5:1: declared and not used: what": nil,
	} {
		got := slices.Sorted(maps.Keys(refused([]byte(out), sample)))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", out, got, want)
		}
	}
}

func TestFailed(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: TestA (0.00s)\n    a_test.go:3: no\n--- FAIL: TestB (0.1s)\nFAIL\n":        "TestA",
		"    --- FAIL: TestA/1 (0.00s)\n--- FAIL: TestA (0.1s)\n":                             "TestA/1",
		"panic: test timed out after 1s\n\trunning tests:\n\t\tTestSlow (1s)\n\ngoroutine 1:": "time-out of TestSlow",
		"PASS?\npanic: runtime error: index\n\ngoroutine 7:":                                  "a panic",
		"fatal error: out of memory":                                                          "the end of its process",
	} {
		if got := killer([]byte(out)); got != want {
			t.Errorf("%q was killed by %q, want %q", out, got, want)
		}
	}
}

func TestAccepted(t *testing.T) {
	list, err := readAccepted(reader("# why\n\na/b.go T.f\n- if a < b {\n+ if a <= b {\nnothing can tell,\nas a is never b\n\na/c.go g\n- x()\n+ (nothing)\nonly faster\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := mutant{File: "a/b.go", Func: "T.f", Before: "if a < b {", After: "if a <= b {"}
	if got := list.reason(m); got != "nothing can tell, as a is never b" || len(list) != 2 {
		t.Errorf("read %q of %d", got, len(list))
	}
	for _, change := range []func(*mutant){
		func(m *mutant) { m.File = "a/c.go" }, func(m *mutant) { m.Func = "f" },
		func(m *mutant) { m.Before = "if a < c {" }, func(m *mutant) { m.After = "if a > b {" },
	} {
		other := m
		change(&other)
		if got := list.reason(other); got != "" {
			t.Errorf("%+v is accepted: %s", other, got)
		}
	}
	for _, text := range []string{"a/b.go f\n- x\n+ y\n", "a/b.go f\n+ y\n- x\nwhy\n", "a/b.go f\nx\ny\nwhy\n"} {
		if _, err := readAccepted(reader(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
