// Package subscriptions keeps who wants to hear of what: topics, and the users who have
// subscribed to them. A topic here is a subject that people follow, and no topic of Kafka.
//
//	topic.go         a topic, and what its settings may be
//	subscription.go  a subscription, and what may become of it
//	slice.go         where a user is among all subscribers of a topic: slices, buckets, pages
//	fault.go         what is wrong with input, by field
//	store.go         START HERE: topics in Cassandra
//	changes.go       joining and leaving, by one logged batch over both tables
//	lists.go         subscribers of a topic, topics of a user
//	forget.go        a user who is erased
//	cache.go         topics that were read a moment ago
//	memory.go        the same in memory, for tests and trials
//
// Both stores pass package subscriptionstest.
//
// Who joins and leaves is decided by the time of the request alone: each write carries it
// as its timestamp, so that a repeat, or one that comes late, changes nothing that a later
// request has set. Who leaves is marked so and stays in the tables: a delete would leave
// tombstones in the way of every fan-out that reads the topic.
package subscriptions
