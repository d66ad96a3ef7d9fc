package main

import (
	"slices"
	"strconv"
	"strings"
)

// edit is text to write at a place of a file, or around a part of it.
type edit struct {
	at   int
	far  int // the other end of what it belongs to
	text string
}

// plant writes mutants into a file's text, each with its number.
func plant(src []byte, ms map[int]mutant) []byte {
	var edits []edit
	for n, m := range ms {
		number := strconv.Itoa(n)
		edits = append(edits,
			edit{m.start, m.end, strings.ReplaceAll(m.prefix, "%%", number)},
			edit{m.end, m.start, m.suffix})
	}
	// At one place: ends before beginnings; of beginnings the one that ends last
	// first, of ends the one that began last. What one piece of code gets from
	// several mutants ends alike, so that their order is free.
	slices.SortFunc(edits, func(a, b edit) int {
		if a.at != b.at {
			return a.at - b.at
		}
		aEnds, bEnds := a.far < a.at, b.far < b.at
		switch {
		case aEnds && !bEnds:
			return -1
		case !aEnds && bEnds:
			return 1
		case a.far != b.far:
			return b.far - a.far
		}
		return strings.Compare(a.text, b.text)
	})
	var out []byte
	done := 0
	for _, e := range edits {
		out = append(append(out, src[done:e.at]...), e.text...)
		done = e.at
	}
	return append(out, src[done:]...)
}

// What goes into the package whose mutants are compiled together: which of them
// acts, and, for the run that asks for it, which of them a test gets to.
const switchFile = `package PACKAGE

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutationActive  = mutationNumber()
	mutationReached [COUNT]atomic.Bool
	mutationReport  = mutationFile()
)

func mutationNumber() int {
	n, err := strconv.Atoi(os.Getenv("MUTATION_ACTIVE"))
	if err != nil {
		return -1
	}
	return n
}

func mutationFile() *os.File {
	f, err := os.OpenFile(os.Getenv("MUTATION_REACHED"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil
	}
	return f
}

func mutationOn(n int) bool {
	if mutationReport != nil && !mutationReached[n].Swap(true) {
		mutationReport.WriteString(strconv.Itoa(n) + "\n")
	}
	return n == mutationActive
}

func mutationIs(n int) bool { return n == mutationActive }

func mutationPick[T any](n int, changed, usual T) T {
	if mutationOn(n) {
		return changed
	}
	return usual
}
`
