// Package embedded runs the servers that pushfleet needs inside the process,
// for the demo and for unit tests: Redis with Bloom filters (miniredis and the
// BF.* commands of this package) and Kafka (kfake). The clients are those of
// production.
//
// They keep everything in memory, know one node, and are slower than the real
// ones; what depends on a real server (cluster slots, persistence, eviction)
// is tested against real servers.
package embedded
