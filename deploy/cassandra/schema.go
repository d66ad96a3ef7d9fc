// Package cassandra ships the schema of Cassandra as one CQL file that
// operators can read and run, and that package status applies.
package cassandra

import _ "embed"

//go:embed schema.cql
var schema string

// Schema is the text of schema.cql: a keyspace and its tables, each statement
// ended by a semicolon, with the defaults of a single node.
func Schema() string { return schema }
