package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commandOf is the command that the words name, with their flags set.
func commandOf(t *testing.T, words []string) *cobra.Command {
	root := &cobra.Command{Use: "pushctl"}
	root.PersistentFlags().StringP("output", "o", "", "")
	root.AddCommand(commands(newApp(strings.NewReader(""), io.Discard, io.Discard))...)
	cmd, rest, err := root.Find(words)
	if err != nil || cmd.HasSubCommands() {
		t.Errorf("pushctl %s: there is no such command (%v)", strings.Join(words, " "), err)
		return nil
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("pushctl %s: %v", strings.Join(words, " "), err)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("pushctl %s: %v", strings.Join(words, " "), err)
	}
	return cmd
}

// Every command in docs/pushctl.md and in the examples of the help is valid,
// and docs/pushctl.md shows every command.
func TestTour(t *testing.T) {
	tour, err := os.ReadFile("../../docs/pushctl.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	check := func(text string) {
		for _, m := range regexp.MustCompile("(?m)(?:^|[`|] ?)(?:PUSHFLEET_[A-Z_]+=\\S+ )?pushctl ([^`#|\n]+)").FindAllStringSubmatch(text, -1) {
			if cmd := commandOf(t, strings.Fields(m[1])); cmd != nil {
				shown[cmd.CommandPath()] = true
			}
		}
	}
	check(string(tour))
	var walk func(cmds []*cobra.Command, path string)
	walk = func(cmds []*cobra.Command, path string) {
		for _, c := range cmds {
			if c.Hidden { // not for people
				continue
			}
			name := path + " " + c.Name()
			if c.HasSubCommands() {
				walk(c.Commands(), name)
				continue
			}
			if !shown[name] {
				t.Errorf("docs/pushctl.md does not show %s", name)
			}
			check(strings.ReplaceAll("\n"+c.Example, "\n  ", "\n"))
		}
	}
	walk(commands(newApp(strings.NewReader(""), io.Discard, io.Discard)), "pushctl")
}
