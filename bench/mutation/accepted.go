package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// accepted are survivors that no test needs to kill, each with its reason. They
// are known by their text, not by their line, so that they outlive changes
// above them.
type accepted map[acceptedKey]string

type acceptedKey struct{ file, fn, before, after string }

// readAccepted reads entries of four or more lines, with an empty line between
// them; lines that begin with # are comments:
//
//	limits/spend.go state.add
//	- if n < limit {
//	+ if n <= limit {
//	reason, which may be
//	longer than a line
func readAccepted(r io.Reader) (accepted, error) {
	list := accepted{}
	var entry []string
	close := func(line int) error {
		defer func() { entry = nil }()
		if len(entry) == 0 {
			return nil
		}
		file, fn, _ := strings.Cut(entry[0], " ")
		if len(entry) < 4 || !strings.HasPrefix(entry[1], "- ") || !strings.HasPrefix(entry[2], "+ ") {
			return fmt.Errorf("the entry that ends in line %d: want file and function, a line with -, one with +, and the reason", line)
		}
		list[acceptedKey{file, fn, entry[1][2:], entry[2][2:]}] = strings.Join(entry[3:], " ")
		return nil
	}
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		n++
		text := strings.TrimSpace(lines.Text())
		switch {
		case strings.HasPrefix(text, "#"):
		case text == "":
			if err := close(n); err != nil {
				return nil, err
			}
		default:
			entry = append(entry, text)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return list, close(n)
}

// reason is why a mutant may survive, if it may.
func (a accepted) reason(m mutant) string {
	return a[acceptedKey{m.File, m.Func, m.Before, m.After}]
}
