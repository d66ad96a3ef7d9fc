// Package declaredtest reads from the sources which metrics the fleet's processes have, for
// tests of what is written about metrics outside of Go: alerting rules, dashboards.
package declaredtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Metric is one that the code declares.
type Metric struct {
	Labels    []string
	Histogram bool
}

// Metrics are all of them, by name.
type Metrics map[string]Metric

// Find finds a metric, and the series that a histogram consists of.
func (s Metrics) Find(name string) (Metric, bool) {
	if m, ok := s[name]; ok {
		return m, !m.Histogram
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			m, ok := s[base]
			return m, ok && m.Histogram
		}
	}
	return Metric{}, false
}

var metricName = regexp.MustCompile(`^push_[a-z_]+$`)

// Read reads from the sources below root, the module's, what metrics a worker, a registry and a
// gateway have, and all string literals.
//
// A metric is declared in one of four ways: by Opts with a Name, in a call that
// may have a list of labels; by a call of a function named counter, gauge or
// histogram with name, help and labels; by NewDesc with those, the labels as a list; or of one named poolGauge or
// poolCounter, whose label is the route.
func Read(t testing.TB, root string) (Metrics, map[string]bool) {
	t.Helper()
	metrics, literals := Metrics{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"testdata", "bin", "bench", "deploy"}, entry.Name())):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if name, m, ok := declaration(n); ok {
					metrics[name] = m
				}
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					literals[s] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"push_consumer_lag", "push_duplicate_bound", "push_registry_shards_ready", "push_status_writes_total", "push_dedupe_fill_ratio", "push_build_info"} {
		if _, ok := metrics[name]; !ok {
			t.Fatalf("%s was not found in the code: metrics are declared in a way that this test does not know", name)
		}
	}
	return metrics, literals
}

// declaration reads a call that declares a metric.
func declaration(call *ast.CallExpr) (name string, m Metric, ok bool) {
	function := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		function = f.Name
	case *ast.SelectorExpr:
		function = f.Sel.Name
	}
	m.Histogram = strings.Contains(strings.ToLower(function), "histogram")
	for i, arg := range call.Args {
		switch arg := arg.(type) {
		case *ast.CompositeLit:
			if n := optsName(arg); n != "" {
				name = n
			} else if labels, isList := stringList(arg); isList {
				m.Labels = append(m.Labels, labels...)
			}
		case *ast.BasicLit:
			s, isString := text(arg)
			direct := slices.Contains([]string{"counter", "gauge", "histogram"}, function)
			switch {
			case !isString:
			case i == 0 && (direct || function == "NewDesc") && metricName.MatchString(s):
				name = s
			case i == 0 && (function == "poolGauge" || function == "poolCounter"):
				name, m.Labels = s, []string{"route"}
			case i > 1 && direct:
				m.Labels = append(m.Labels, s)
			}
		}
	}
	return name, m, name != ""
}

// optsName is the Name in prometheus' …Opts.
func optsName(lit *ast.CompositeLit) string {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Name" {
			if s, ok := text(kv.Value); ok && metricName.MatchString(s) {
				return s
			}
		}
	}
	return ""
}

func stringList(lit *ast.CompositeLit) (list []string, ok bool) {
	for _, e := range lit.Elts {
		s, isString := text(e)
		if !isString {
			return nil, false
		}
		list = append(list, s)
	}
	return list, len(list) > 0
}

func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
