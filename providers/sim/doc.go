// Package sim is a simulator of Apple's push service, Firebase Cloud Messaging
// HTTP v1 and Google's OAuth token endpoint. Tests, the demo and benchmarks
// send to it, and then ask its ledger what really arrived.
//
// It has two halves that know nothing of each other's inside. The policy
// decides what a Request is answered: pure Go over small structs, no network,
// no goroutine. The engine moves requests and answers over HTTP/2. Start
// reading at policy.go.
//
// It imports nothing else of this project, so that it can be the referee.
package sim
