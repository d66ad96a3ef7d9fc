package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// sources are the package's files, by their names from the module's root.
type sources map[string][]byte

// sites reads the package's files and finds all that can be changed.
func (r *runner) sites(ctx context.Context) (sources, []mutant, error) {
	listed, err := r.goTool(ctx, "list", "-f", "{{.Name}}{{range .GoFiles}} {{.}}{{end}}", r.pkg)
	if err != nil {
		return nil, nil, fmt.Errorf("listing %s: %w\n%s", r.pkg, err, listed)
	}
	names := strings.Fields(string(listed))
	r.name = names[0]
	files := sources{}
	var all []mutant
	for _, base := range names[1:] {
		src, err := os.ReadFile(filepath.Join(r.dir, base))
		if err != nil {
			return nil, nil, err
		}
		name := path.Join(path.Clean(filepath.ToSlash(r.pkg)), base)
		files[name] = src
		found, err := mutants(name, src)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, found...)
	}
	return files, all, nil
}

// build compiles the first n of the drawn mutants into the package's tests. One
// that does not compile is none: the next takes its place. It returns those
// that are in the binary, by their numbers.
func (r *runner) build(ctx context.Context, files sources, drawn []mutant, n int) ([]mutant, error) {
	for {
		sample := drawn[:min(n, len(drawn))]
		out, err := r.compile(ctx, files, sample)
		if err == nil {
			return sample, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		bad := refused(out, sample)
		if len(bad) == 0 {
			return nil, fmt.Errorf("building the tests of %s: %w\n%s", r.pkg, err, out)
		}
		var kept []mutant
		for i, m := range drawn {
			if !bad[i] {
				kept = append(kept, m)
			}
		}
		drawn = kept
	}
}

var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`)

// refused finds the mutants that the compiler complains about: those of the
// line, or, as a function without an end is told of at its brace, the last
// before it.
func refused(out []byte, sample []mutant) map[int]bool {
	bad := map[int]bool{}
	for _, complaint := range compileError.FindAllSubmatch(out, -1) {
		line, _ := strconv.Atoi(string(complaint[2]))
		nearest := 0
		for _, m := range sample {
			if path.Base(m.File) == path.Base(string(complaint[1])) && m.Line <= line {
				nearest = max(nearest, m.Line)
			}
		}
		for i, m := range sample {
			if path.Base(m.File) == path.Base(string(complaint[1])) && m.Line == nearest {
				bad[i] = true
			}
		}
	}
	return bad
}

// compile builds the tests with all mutants of the sample in them. The changed
// files stand in for those of the tree by go's overlay.
func (r *runner) compile(ctx context.Context, files sources, sample []mutant) ([]byte, error) {
	of := map[string]map[int]mutant{}
	for i, m := range sample {
		if of[m.File] == nil {
			of[m.File] = map[int]mutant{}
		}
		of[m.File][i] = m
	}
	text := strings.NewReplacer("PACKAGE", r.name, "COUNT", strconv.Itoa(len(sample))).Replace(switchFile)
	changed := map[string][]byte{filepath.Join(r.dir, "mutation_switch.go"): []byte(text)}
	for file, ms := range of {
		changed[filepath.Join(r.root, filepath.FromSlash(file))] = plant(files[file], ms)
	}
	replace := map[string]string{}
	for name, text := range changed {
		replace[name] = filepath.Join(r.scratch, filepath.Base(name))
		if err := os.WriteFile(replace[name], text, 0o600); err != nil {
			return nil, err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	name := filepath.Join(r.scratch, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		return nil, err
	}
	r.binary = filepath.Join(r.scratch, "package.test")
	return r.goTool(ctx, "test", "-c", "-gcflags=-e", "-overlay", name, "-o", r.binary, r.pkg)
}
