// Package firsts keeps in Redis, for a while, where the first record of each message is
// that gateways have accepted, so that each of them knows a repeat (gateway.Firsts). The
// first that is kept under a name stands.
//
// It is an aid and no promise: what Redis has lost, does not say in time or was not given,
// is as if it had never been kept. Nobody waits for it longer than a small part of a
// second, and nobody at all while Redis is away.
package firsts
