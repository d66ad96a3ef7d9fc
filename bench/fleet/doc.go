// Package fleet runs a whole fleet as operators would: the pushworker binary
// as child processes with a configuration file, against real Kafka, Redis and
// Cassandra, with the simulator of APNs and FCM in this process. It produces
// records, kills and stops workers, waits until everything is committed, and
// accounts for every record from what is left behind: the topics, the status
// rows and the simulator's ledger.
//
// It is for tests, speed measurements and the chaos harness, and needs no
// testing.TB: all failures are errors that say what to look at.
package fleet
