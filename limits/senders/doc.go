// Package senders holds how much a sender may send: rules, and their buckets in
// Redis. It is the SenderLimits that package limits asks about what the rules of
// recipients allow.
//
// A sender's buckets are no part of any user's state: a script takes the tokens of
// all its requests in a batch at once. What finds none takes one that is still to
// come, so the bucket owes, up to a bound, and the request carries on that it has
// paid. Buckets count attempts, not ids.
package senders
