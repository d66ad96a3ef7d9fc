// Package planted makes a worker do what it is told to do wrong, so that
// bench/mutants can show that its checkers notice. All of it is behind the build
// tag planted, but for the names of the variables that tell it; without any of
// them a worker that was built with the tag is the worker.
package planted

// Tag is the build tag that such a worker is built with.
const Tag = "planted"

// The environment variables that say what is planted.
const (
	// Bug is the name of a bug.
	Bug = "PLANTED_BUG"
	// Crash is where the worker kills itself: the name of a point, and behind a
	// colon on which visit, from 1.
	Crash = "PLANTED_CRASH"
	// Store is the host:port of the status store that is used in place of
	// Cassandra.
	Store = "PLANTED_STATUS"
)
