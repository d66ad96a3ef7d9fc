// Package sim is a simulator of Apple's push service, Firebase Cloud Messaging
// HTTP v1 and Google's OAuth token endpoint. Tests, the demo and benchmarks
// send to it, and then ask its ledger what really arrived.
//
// The policy decides what a Request is answered: pure Go over small structs, no
// network, no goroutine. The engine, a package of its own that knows no
// provider, moves requests and answers over HTTP/2 and HTTP/1.1. A session
// stands between them, one per connection: it asks the policy, and has the
// engine do to the connection what the policy, a rule or a command wants done.
// Start reading at policy.go.
//
// It imports nothing of this project but its engine, so that it can be the
// referee.
package sim
