// Package quota is how many messages each sender may send through the gateways of a
// fleet together: so many a second, minute, hour and day.
//
//	gateway ──Take──▶ ┌───────────────────────┐ every 100 ms,  ┌──────────────────────────┐
//	                  │ Sender, of one gateway│  or when short │ Redis: a hash a window:  │
//	                  │  window: used, held   │───── ask ─────▶│  sum, count of each      │
//	                  │  others, as last told │◀──── lease ────│  gateway                 │
//	                  └───────────────────────┘                └──────────────────────────┘
//
// Windows are fixed: the seconds, minutes, hours and days of UTC by Redis's clock. In none
// of them more is admitted than the limit; in a stretch that begins in one and ends in the
// next it may be twice as much, as with every fixed window.
//
// A gateway holds as much as it needs for the next moments by its own demand, and only part
// of what is left, so that admitting a message asks nobody. It tells its whole count of
// the window with each ask, used and held: so a lost answer, a repetition or a wiped Redis
// are mended by the next ask, what is not needed goes back by telling less, and a gateway that
// dies takes no more than it held, until the window ends. Asks are numbered, so that one that
// comes late changes nothing. Of a limit under 100 a gateway nothing is held ahead: each
// message asks for its own. Whoever finds nothing held waits for 50 ms at the most, for a
// lease and not in line: a sender that has been silent, and a batch larger than what is held. Where
// Redis is slower, the lease that comes too late is kept for three seconds for who comes again.
// The first messages at a gateway that has just begun wait until Redis has answered for the first time, or is away.
//
// Windows are told by Redis's clock (TIME), which a gateway knows within the round trip of its
// asks and carries on by its monotonic clock. A lease counts for its own window only, and not
// while that may have ended, or may not have begun. The next window's is asked for before it
// begins. Wrong wall clocks are no matter; a monotonic clock may run wrong by one part in a thousand.
//
// While Redis is away, which is when it has not answered for a second, a gateway admits min(limit/N − what it has had, what was left/N) of
// the window, and limit/N of those that follow, with N the gateways that Redis last knew.
// It is never unlimited, but it is no longer "never over": gateways that do not hear of each other
// may disagree on what was left, and on N.
//
// A Redis that was wiped is told by each gateway what it had: with the next ask of a sender,
// or when the gateway finds, once a second, that it is not among the gateways any more. Until then
// others may be given it once more, and what gateways had that have ended is forgotten. Of a cluster
// whose shard was wiped without the set of gateways, nobody tells of a sender that is silent.
//
// Why this is not package rates, which leases parts of a fleet's rate: there a grant is a
// slot, sends one after the other at the fleet's pace, at most 200 ms ahead and 15 % in any
// 100 ms, so that a provider sees an even stream; and the rate follows the provider's answers.
// A limit of 1,000 an hour would let one through every 3.6 s, and a batch of 500 under 1,000
// a second would be refused. What lapses unused is lost there and must not be here. What both do
// alike is taken over: one script, Redis's time and the monotonic clock, demand told by each,
// a part of one's own while Redis is away.
//
//	policy.go    limits, and what is told of them
//	sender.go    Sender: START HERE; what is admitted, and who waits
//	window.go    one window of a sender as one gateway holds it
//	clock.go     where Redis's clock is
//	ask.go       what is asked and what follows
//	store.go     the script
//	quotas.go    all senders of a gateway
//	gateways.go  how many gateways there are
//	metrics.go   what is told of them
//	fullest.go   how near senders came, for push.events
package quota
