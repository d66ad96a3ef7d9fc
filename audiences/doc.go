// Package audiences keeps who uses an app: the users for whom a device of it was ever
// registered. A message to all users of an app goes to them.
//
//	member.go  who is noted, and who is a member
//	store.go   START HERE: members in Cassandra
//	forget.go  a user who is erased
//	fill.go    the records of push.users, from which they come
//	memory.go  the same in memory, for tests and trials
//
// Both stores pass package audiencestest.
//
// A member whose last device is gone stays one: what becomes of the message is decided when
// it is worked on, as with every other. So nothing is deleted but of a user who is erased,
// and no tombstones lie in the way of a fan-out. Members lie in the slices of fan-outs, so
// that each part of one is a run of partitions.
//
// A row is written once, by who is first to find that there is none, with the time of the
// user's record in push.users as its timestamp. So a record that is read late, or again,
// brings nobody back who was erased after it was written.
package audiences
