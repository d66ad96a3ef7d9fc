// Package shards says how keys spread over Redis, names every key, and opens
// the connection.
//
// Users spread over 256 shards and notification ids over 64. All keys of a
// shard carry its hash tag, so that in Redis Cluster they share one slot and a
// batch of 10,000 users is 256 multi-key commands instead of 10,000 single
// ones. The tags are chosen so that shard i of the users sits at slot 64·i:
// however many nodes share the 16,384 slots, each gets its even part.
//
// The package imports nothing of ours. Everything stored under these names
// depends on the two hash functions and the tags: they must never change.
package shards
