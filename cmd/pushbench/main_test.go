package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for why, tt := range map[string]struct {
		args []string
		exit int
		want string // on standard error; if empty, help on standard output
	}{
		"no command":         {nil, exitUsage, "see pushbench --help"},
		"an unknown command": {[]string{"whale"}, exitUsage, "whale"},
		"an unknown flag":    {[]string{"-x"}, exitUsage, "-x"},
		"an unknown format":  {[]string{"-o", "xml"}, exitUsage, "want table or json"},
		"help":               {[]string{"--help"}, exitDone, ""},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), tt.args, strings.NewReader(""), &stdout, &stderr)
		if exit != tt.exit || !strings.Contains(stderr.String(), tt.want) || (stdout.Len() > 0) != (tt.want == "") {
			t.Errorf("%s: status %d, %q, %q", why, exit, stderr.String(), stdout.String())
		}
	}
}

// Every command in the documentation and in the examples of the help is valid.
func TestExamples(t *testing.T) {
	b := newBench(strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
	all := commands(b)
	var texts []string
	for _, file := range []string{"../../bench/README.md", "../../docs/pushctl.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	for _, c := range all {
		c.Flags().VarP(&b.format, "output", "o", "") // the root's
		texts = append(texts, strings.ReplaceAll("\n"+c.Example, "\n  ", "\n"))
	}
	found := 0
	for _, m := range regexp.MustCompile("(?m)(?:^|[`|] ?)pushbench (\\w[^`#|;\n]*)").FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		words := strings.Fields(m[1])
		for _, c := range all {
			if c.Name() != words[0] {
				continue
			}
			found++
			if err := c.ParseFlags(words[1:]); err != nil || c.ValidateArgs(c.Flags().Args()) != nil {
				t.Errorf("pushbench %s: %v, %v", m[1], err, c.ValidateArgs(c.Flags().Args()))
			}
		}
	}
	if found < 8 && len(all) > 0 {
		t.Errorf("found only %d examples", found)
	}
}
