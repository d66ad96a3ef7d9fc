// Package chaos breaks a whole fleet on purpose and holds what is left against
// its promises: workers as child processes, real Kafka, Redis and Cassandra of
// the run's own behind fault proxies, the simulator in place of Apple and
// Google.
//
// START HERE: run.go is one run from top to bottom. What is done to the fleet
// is a Plan, a pure function of the scenario and the seed (plan.go,
// scenarios.go), which the nemesis carries out (nemesis.go). Observers write
// ledgers (observe_*.go), each with clients of its own that reach the servers
// around the proxies. Package invariants judges them; report.go and page.go say
// so.
package chaos
