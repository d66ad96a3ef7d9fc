// Package rates is how fast the workers of a fleet send, together: one rate for
// each thing that a provider counts (a Firebase project; a team's topic and
// environment at Apple), whatever the number of workers and of apps that use it.
//
//	gates.Gate.Admit ──Take──▶ ┌──────────────────────┐ every 100 ms  ┌─────────────────────┐
//	                           │ Rate, of one worker  │──── ask ─────▶│ Redis: one hash     │
//	gates.Return ──Answered──▶ │  output: its slots   │               │  State, answers,    │
//	                           │  State, as last told │◀─── grant ────│  next free slot     │
//	                           └──────────────────────┘               └─────────────────────┘
//
// State is the rate and its epoch. Workers tell their answers with each ask; whoever
// sees that they add up to a change (Factors.next, the model: no clock, no store)
// proposes it, and the script takes it if the epoch is still that one. So answers to
// what was sent before a change count for nothing after it, and a storm of answers
// is one step.
//
// A grant is a slot: so many sends, one after the other at the fleet's rate, from
// a time on. Slots of all workers follow each other, so that the fleet's output is
// even, and what a slot has left when it is over lapses. A part of what can be
// granted ahead is kept for urgent sends, whose slots begin at once; where that is less
// than one, one of them goes beyond it at a time. Times are
// Redis's; a worker adds what its monotonic clock says has passed since the answer.
//
// While Redis is away a worker goes on with the share that it had, and then with
// an equal part of the rate, which its own answers change. A key that is gone is
// written again with the lowest rate that a worker remembers.
//
// A limit of the whole fleet, whatever the route, is one more such rate, which no answer
// changes. The first lane's sends are its urgent ones; the others share it by weight, in a
// worker by turns, and between workers by demand that is told times the weights.
//
//	model.go    what answers mean for a rate
//	announced.go  what the provider says is left, before it answers 429
//	output.go   the slots of one worker, and how evenly they are used
//	rate.go     Rate: what gates ask, and what is asked of Redis
//	limit.go    the limit of the whole fleet, which lanes share
//	away.go     what a worker does alone
//	store.go    the script
//	rates.go    all rates of a worker
//	metrics.go  what is told of them
package rates
