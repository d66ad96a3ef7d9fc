// Package inbox keeps what users read when they look: messages for those who have no
// device, or do not use it, and what users have marked as read.
//
//	entry.go    a message in an inbox, its place there, and when it counts as read
//	store.go    START HERE: inboxes in Cassandra
//	page.go     a page of one, merged of the user's own entries and of topics' messages
//	topics.go   messages to topics, once for all who follow
//	marks.go    read, unread, shown
//	unread.go   how many are not read
//	news.go     who has got something, in the order of time
//	watcher.go  those who wait for something new, told by one look for all
//	memory.go   the same in memory, for tests and trials
//
// Both stores pass package inboxtest.
//
// A message has its place by its id: written twice it is there once. One to a topic is not
// written to the inboxes of those who follow it, but read beside them; what a user has done
// with it stands in the inbox, at the same place. Nothing is ever
// deleted, but of a user who is erased, and no column is set to null, so that a read meets
// no tombstones: what is read is marked in its row, and all rows die by their age.
package inbox
