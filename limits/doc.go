// Package limits holds how many notifications a user may get: rules, the state
// they are decided from, and the write back to Redis.
//
// # One user, one value
//
// All rules of a user are decided together, here and not in Redis: the state
// of a user is one value, read in the same MGET as the user record, and
// written back by compare-and-set, many users in one script. So any number of
// rules costs one round trip.
//
// The state is a list of events: what was allowed, with its id, and what waits.
// Every algorithm is a function that counts events at times (algorithms.go), so
// rules can be changed while workers run and count what was allowed before. Each
// event says until when some worker's rule needs it: who prunes goes by that, and
// not by the rules of its own file, which may be older. What no rule needed is
// forgotten: a new rule of a longer window begins without it.
//
// Names are kept as hashes: ids of 64 bits, types of 32, apps, lanes and channels of 16
// (apart.go refuses rules that would take one for another).
//
// # What holds
//
// A limit holds at every moment of a user's time line, also where it is written
// out of order: a notification is allowed when the limit still holds at its own
// time and at all later ones that are in the state.
//
// A decision is idempotent by notification id: an id that was allowed is in the
// state, and asking again allows it and spends nothing. A refusal leaves no
// trace and is decided again. A record delivered twice, a stage repeated after
// an error and two workers at once therefore never count one twice.
//
// Rules of devices are asked first, for each delivery, and only drop. When none
// is left, nothing is spent; otherwise the rules of user, type and segment have
// to agree, and then the sender's. Only what all of them let go is spent.
//
// # The order of effects
//
// All is read; users are decided in memory, rules of devices first; senders' limits
// give tokens to what is allowed (DecideWith); the states are written in Redis, and
// then the rows of devices in Cassandra, also of what Redis had allowed before.
//
// What its sender's limits suppress or put off is not in the decision then: its user
// is decided again without it, and another request of the user's that finds room asks
// its own sender. It is judged anew when it comes back. A booking that it had stands
// until its time is over.
//
// A token is taken once: it stays with its request (Paid) when a later effect fails
// and the batch is repeated, or when another worker has changed the state meanwhile
// and the request is put off. Refused then, its token is lost, and so are some of
// those that a user's requests take beyond the third turn, when all that are left ask
// together. That only delays others of the sender.
//
// # Devices in Cassandra
//
// Events of rules of devices can stand in Cassandra or Scylla (device_log.go) in
// place of the state. Decisions are those of the state, by the same code, but nothing
// guards a row between read and write: DeviceLog says what that costs.
//
// # Waiting
//
// A rule that defers books a place on the time line (booking.go), the first that
// all rules have room for, so that what waits does not come back in vain. The
// number of bookings is bounded: of the lowest priority the oldest goes, and is
// judged anew when it comes due, as is one that was moved for a higher priority.
// A booking that is not asked for within ten minutes of its time is forgotten.
//
// # Senders
//
// Limits of senders have a room of their own (package senders), with buckets that are
// no part of any user's state. Here they are SenderLimits: who asks them, when, and
// what becomes of a user's other requests.
//
// # Formats
//
// State version 1 is read; version 2 is written when an option says so, and where
// it already stands. An unknown version and a damaged state stall: read as empty they
// would grant every limit again. They are read again each time, so that Forget, or a
// worker that knows the version, ends it.
package limits
