// Package push holds the nouns that all packages share: Message, User, Device,
// Platform, Route, Partition, Verdict, Result, the rows of the status table
// with what their history says, reasons and hashes.
//
// It is a leaf: it imports none of our packages, starts no goroutine and reads
// no clock. Its types are values; none of them may be changed by two goroutines
// at once.
package push
