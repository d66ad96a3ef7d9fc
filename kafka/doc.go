// Package kafka is the only room that knows Kafka: it hands batches of a topic
// to the pipeline and commits what is done (Source), hands records over
// (Producer), and gives the registry and the operator's tool what they need
// (Writer, Follower, Consumer, Admin). Start reading at source.go.
//
// What every part of it keeps: commits are synchronous and only move forward;
// nothing is committed for a partition after it was given back; records are
// polled only when there is room for them.
package kafka
