package push

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// docs/reasons.md lists every reason code of reason.go exactly once, and no
// other.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Reason" {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := declared[code]; taken {
			t.Errorf("%s and %s have the same code", other, spec.Names[0].Name)
		}
		declared[code] = spec.Names[0].Name
		return true
	})
	if len(declared) < 30 {
		t.Fatalf("found only %d reasons: %v", len(declared), declared)
	}
	docs, err := os.ReadFile("../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)[^`]*` \\| \\S").FindAllStringSubmatch(string(docs), -1) {
		if listed[m[1]] {
			t.Errorf("%s is listed twice", m[1])
		}
		listed[m[1]] = true
	}
	for _, code := range slices.Sorted(maps.Keys(declared)) {
		if !listed[code] {
			t.Errorf("%s (%s) is not in docs/reasons.md", code, declared[code])
		}
	}
	for _, code := range slices.Sorted(maps.Keys(listed)) {
		if declared[code] == "" {
			t.Errorf("docs/reasons.md lists %s, which is no reason", code)
		}
	}
}
