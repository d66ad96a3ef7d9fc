package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxFile is more than any sensible configuration needs, and little enough to
// read.
const maxFile = 1 << 20

// Load reads the file at path over the defaults, lets the environment (as
// os.Environ gives it) override, and checks the whole. An empty path is no
// file. The error is Problems when the content is at fault, wrapped with the
// file's path. Files with secrets are not opened: CheckFiles does.
func Load(path string, env []string) (*Config, error) {
	var text []byte
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		defer f.Close()
		if text, err = io.ReadAll(io.LimitReader(f, maxFile+1)); err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		if len(text) > maxFile {
			return nil, fmt.Errorf("reading the configuration: %s is over %s", path, Bytes(maxFile))
		}
	}
	c, err := Parse(text, env)
	switch {
	case err == nil:
		return c, nil
	case path == "":
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return nil, fmt.Errorf("configuration %s: %w", path, err)
}

// Parse is Load for a text that has been read.
func Parse(text []byte, env []string) (*Config, error) {
	c := Default()
	r := reader{lines: map[string]int{}, variables: map[string]string{}}
	r.file(text, c)
	r.environment(c, env)
	// What could not be read keeps its default, so that it causes no further
	// problem.
	unread := make(map[string]bool, len(r.problems))
	for _, p := range r.problems {
		unread[p.Path] = true
	}
	for _, p := range c.check() {
		if !unread[p.Path] {
			p.Line, p.Variable = r.lines[p.Path], r.variables[p.Path]
			r.problems = append(r.problems, p)
		}
	}
	if err := r.problems.orNil(); err != nil {
		return nil, err
	}
	return c, nil
}

// file reads the YAML text over c.
func (r *reader) file(text []byte, c *Config) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // empty: the defaults
		return
	case err != nil:
		r.problems = append(r.problems, syntaxProblem(err))
		return
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		r.problems.add("", "must be a single YAML document, but more follows it")
		return
	}
	r.root(&doc, c)
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Line - b.Line })
}

var (
	yamlLine   = regexp.MustCompile(`line (\d+)`)
	yamlQuoted = regexp.MustCompile(`'[^']*'|"[^"]*"|` + "`[^`]*`")
)

// syntaxProblem passes on the YAML parser's message without what it quotes.
func syntaxProblem(err error) Problem {
	p := Problem{Message: "not YAML: " + yamlQuoted.ReplaceAllString(err.Error(), "…")}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
	}
	return p
}
