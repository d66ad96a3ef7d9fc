// Package inbox keeps what users read when they look: messages for those who have no
// device, or do not use it, and what users have marked as read.
//
//	entry.go    a message in an inbox, its place there, and when it counts as read
//	store.go    START HERE: inboxes in Cassandra
//	marks.go    read, unread, shown
//	news.go     who has got something, in the order of time
//	watcher.go  those who wait for something new, told by one look for all
//	memory.go   the same in memory, for tests and trials
//
// Both stores pass package inboxtest.
//
// A message has its place by its id: written twice it is there once. Nothing is ever
// deleted, but of a user who is erased, and no column is set to null, so that a read meets
// no tombstones: what is read is marked in its row, and all rows die by their age.
package inbox
