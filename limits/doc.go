// Package limits holds how many notifications a user may get: rules, the state
// they are decided from, and the write back to Redis.
//
// All rules of a user are decided together, here and not in Redis: the state
// of a user is one value, read in the same MGET as the user record, and
// written back by one compare-and-set script per user shard. So any number of
// rules costs one round trip.
//
// A decision is idempotent by notification id: an id that was allowed is in the
// state, and asking again allows it and spends nothing. A denial leaves no
// trace and is decided again. A record delivered twice, a stage repeated after
// an error and two workers at once therefore never count one twice.
package limits
