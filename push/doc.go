// Package push holds the nouns that everybody speaks: Message, User, Device,
// Platform, Route, Partition, Verdict, Result, the rows of the status table with
// what their history says, reasons and hashes.
//
// It is a leaf: it imports nothing of ours, starts no goroutine and asks no clock.
// Its types are values; none of them may be changed by two goroutines at once.
package push
