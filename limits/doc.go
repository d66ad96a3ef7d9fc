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
// not by the rules of its own file, which may be older.
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
// to agree, and all is spent in one write.
//
// # Devices in Cassandra
//
// Events of rules of devices can stand in Cassandra or Scylla (device_log.go) in
// place of the state. Then the order of effects is: read the devices' partitions;
// decide, rules of devices first; write the states in Redis; then write the rows,
// also of what Redis had allowed before. Decisions are those of the state, by the same code,
// but nothing guards a row between read and write: DeviceLog says what that costs.
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
// A sender's buckets (senders.go) are no part of any user's state: a script takes
// the tokens of all its requests in a batch at once. What finds none takes one
// that is still to come, so the bucket owes, up to a bound, and the request
// carries on that it has paid. Buckets count attempts, not ids.
//
// # Formats
//
// State version 1 is read; version 2 is written when an option says so, and where
// it already stands. An unknown version stalls: read as empty it would grant
// every limit again.
package limits
