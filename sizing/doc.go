// Package sizing says what a fleet needs for a load: workers, partitions and
// connections, memory of Redis, nodes of Cassandra, disk and network of Kafka. It is
// arithmetic over an Input, and a Plan has every step of it as a line.
//
//	input.go       Input: what is asked, what was measured; Default
//	parameters.go  each number of it with its name, unit, range, default and source
//	plan.go        Plan, Of: the order of the steps
//	workers.go     workers, partitions, connections
//	redis.go       filters, users' records, limits, collapse keys; nodes
//	storage.go     Cassandra, Kafka, segments in workers
//	words.go       numbers as people read them
//
// The rules behind it: what is in flight is rate times latency (Little's law); a
// processor does busy time / cost each a second; a store holds what comes in a day
// times the days that it is kept times its copies. What was measured is a default
// of a Parameter, whose Source says where; put what you have measured in its place.
//
// Nothing here keeps state, asks the time or reads anything, so all of it is safe
// for concurrent use.
package sizing
