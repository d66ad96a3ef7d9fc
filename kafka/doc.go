// Package kafka is the only package that knows Kafka. Source hands batches of a topic to
// the pipeline and commits what is done; Producer hands records over; Writer, Follower,
// Consumer and Admin serve the registry and the operator's tool. Start reading at
// source.go.
//
// Three rules hold throughout: commits are synchronous and only move forward; nothing is
// committed for a partition after it was given back; records are polled only when there
// is room for them.
package kafka
