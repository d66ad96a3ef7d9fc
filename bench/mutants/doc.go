// Package mutants shows that the checkers of this repository notice: it runs
// workers that were built with one bug planted (the build tag planted), through
// a scenario that the worker without it passes, and names the invariant that
// caught each. It also kills workers at named points of a notification's way,
// and compares what becomes of every notification there with what is promised.
//
// A world is a fleet of child processes around servers in this process, so that
// a run takes seconds: Kafka is kfake, Redis miniredis, the status store a
// memory store over TCP. README.md has the list.
package mutants
