// Package local starts real servers on this machine without containers, as
// child processes that tests and the chaos harness own and may stop, kill,
// pause and restart: Kafka in KRaft mode, Redis with the Bloom module, one of
// them or a cluster of three, and Cassandra, each plain or demanding TLS and a
// password.
//
// What they run from is fetched beforehand by deploy/local/fetch.sh. Every
// server listens on 127.0.0.1 only, picks free ports itself, and dies with the
// process that started it, whatever ends that.
//
// The package imports nothing of ours and no client library: it speaks as much
// of the three protocols as it needs to tell whether a server is ready.
package local
