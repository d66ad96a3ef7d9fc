// Package journal keeps which notifications a user was meant to get in the last days, in lanes
// that ask for it: so that what became of a message is found by who it was for, and not by its
// id alone.
//
//	entry.go   what is kept of a notification, and what is asked
//	store.go   START HERE: journals in Cassandra
//	memory.go  the same in memory, for tests and trials
//
// Both stores pass package journaltest.
//
// An entry says that there was a notification and of which kind, and never what became of it:
// that is in the status rows of its id. It is written before the notification is sent, and the
// same however often its record is worked on. Nothing is deleted but of a user who is erased,
// and rows die by their age.
package journal
