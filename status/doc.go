// Package status keeps what became of every notification: one row per
// notification, device, step and state, in Cassandra or in memory.
//
// It implements pipeline.Status (Write, Bucket) and the confirm read (Read). Of
// what operators run, only this package imports gocql.
//
// Rows are only ever inserted. Write merges the rows of concurrent calls by
// bucket, the partition key, into unlogged batches of one partition, and
// returns when all of its rows are durable. A store that times out, is
// overloaded or down is waited for until the caller's context ends: no failure
// of the store is ever an outcome of a message.
//
//	layout.go     id -> bucket
//	merge.go      rows of many Writes -> batches; retry, back-off
//	linger.go     how long a batch waits for more rows
//	flow.go       how many batches may be in flight
//	encode.go     Row -> CQL values
//	options.go    which servers, and how
//	cassandra.go  the store: open, Write, Ping
//	insert.go     one batch to the server
//	read.go       the confirm read
//	places.go     how many of its queries may be in flight
//	session.go    the gocql session, rebuilt when it does not heal
//	hosts.go      which nodes it leaves unused although they answer
//	lend.go       that session, lent to those with other tables
//	failure.go    what an error of gocql means
//	schema.go     keyspace and tables: apply
//	found.go      what the server has of them: check
//	memory.go     the same store in memory
//	metrics.go    all metrics
package status
