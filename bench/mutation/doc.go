// Command mutation judges the tests of a package: it changes one thing in the
// package's code at a time (a mutant), runs the tests that get to the place,
// and lists the changes that no test noticed.
//
//	make mutation PKG=./dedupe SEED=1
//
// It is a program of ours because no maintained tool does the job. gremlins
// v0.6.0 works with Go 1.26, but it removes no statements and returns no zero
// values: a window that is never given back, a check that is gone, an error
// that is swallowed are what this project's tests must see. It draws no sample
// either, and builds and runs all of a package's tests for each mutant, which is
// hours for a package whose tests take a minute. The forks of go-mutesting,
// which remove statements, are not to be had from the module proxy.
//
// Here all mutants of a sample are compiled into one test binary, in which an
// environment variable chooses the one that acts; only tests that reach it are
// run, fast ones first, until one fails. The working tree is never touched:
// changed files reach the compiler through go's -overlay.
//
// Tests see the environment that the program has: behind
// `go run ./deploy/local/servers run --` those that need real servers run too, as
// make does it. Those that skip themselves are named.
//
// What is drawn is a function of the seed and of the code. A change that does
// not compile is no mutant, and another is drawn in its place. One that no test
// reaches has survived. Not changed are log lines, constants and what else
// stands outside of functions, text, how much room is made beforehand, sums of
// what calls return, and the third part of a for.
package main
