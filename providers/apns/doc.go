// Package apns sends to Apple: one Client per app and environment, with token
// authentication. It writes requests and reads answers; the connections are
// those of an h2 pool.
package apns
