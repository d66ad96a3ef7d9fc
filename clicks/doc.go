// Package clicks keeps what apps report back of notifications: that a user clicked one, or
// unsubscribed by one.
//
//	report.go  what is reported, and of what time a notification is
//	store.go   START HERE: reports in Cassandra
//	counts.go  how many a user has, by type and day
//	memory.go  the same in memory, for tests and trials
//
// Both stores pass package clickstest.
//
// What is reported again is the same row, whichever gateway takes it and however much later:
// its key is the notification and the event, and its partition depends on user and id alone.
// So counts are of notifications and need no counters, which a repeat would add to. Nothing
// is deleted but of a user who is erased, and rows die by their age.
package clicks
