// Package users knows the fleet's users: their devices, preferences and what else decides about a push.
//
// The truth is the compacted topic push.users. Redis holds one packed record
// per user, made from it, so that a few MGETs, or in a Redis Cluster one per shard,
// answer a whole batch.
//
//   - Client writes the topic: devices registered and removed, preferences, profiles
//     and personal limits.
//   - Registry follows the topic and keeps Redis equal to it; it builds a
//     shard anew that was wiped, and settles who owns a token.
//   - Feedback turns dead tokens reported by the providers into removals.
//   - Reader reads records for the pipeline.
//
// What the topic and Redis say of a user is a value, and read, decided and packed
// in users/record, which knows neither of them. What a shard in Redis says of itself is
// read in users/state. Removing all of a user, for an operator, is users/erase.
//
// # The topic
//
// A record's key names a user and a part: the preferences, the profile, the personal
// limits, or a device. Each record replaces its part; a nil value (tombstone) removes it. Keys and values
// are described in users/record. All parts of a user must be in one partition,
// so producers hash PartitionKey(key), and the topic must not be given more
// partitions once it is in use.
//
// A value that cannot be read, because it is of an unknown version or breaks a
// rule, puts its part in quarantine, and touches nothing else: what was there
// of the part before stands. Without that, push.Quarantine says what it
// means for the user's notifications. Of profile and personal limits it means nothing:
// they forbid nothing, so the user is one without them, whose zone is not known, and to
// whom the rules' own limits apply. The compacted topic
// push.users.quarantine tells of such parts (see Quarantined), and the next
// record of the part that can be read ends it.
//
// A device of a platform that is not known, because a later version wrote it, is
// told there too, but is a device like the others: its record is kept byte for
// byte, in the user's packed record as well, and who knows the platform reads
// it from there. Until then nothing can be sent to it.
//
// An older registration of a device does not replace a newer one: the registry
// appends the newer one again behind it, so that compaction keeps it.
//
// A tombstone may carry the Kafka header HeaderIfNotAfter: then it removes the
// device only if it was not registered later than that. If it was, the
// registry appends the registration again behind the tombstone, so that
// compaction keeps it. So removals decided from Redis, which is always a
// little behind the topic, never take away a newer registration.
//
// What the registry appends again carries the header HeaderRepeats: it counts
// only if it is still what holds, so a log-out in between wins. A shard that is
// built then cannot know, and counts it; so who sees that nobody claims the token
// any more appends its removal.
//
// # Redis
//
// Everything the registry writes into a shard is a function of the topic's
// beginning up to the offsets in o:{s}, and is written together with them by
// one script that checks that nobody else wrote meanwhile. So several
// registries may follow one topic, a crash between any two steps repeats work
// and loses none, and a server that lost its latest writes is simply behind.
//
//	u:{s}:<user>   the packed record (see record.Encode)
//	t:{k}:<hash>   who claims a token; of those who have the device, the one who
//	               registered last owns it
//	t:{k}:open     what somebody has still to do: tokens with two claims, parts
//	               whose latest record is not what holds, parts in quarantine
//	               that are not told yet, values that must be rebuilt, repeats that
//	               came too late
//	t:{k}:unread   the parts in quarantine
//	o:{s}          fields v (build and version of the shard), at (milliseconds:
//	               when it was last known to be current), and per partition the
//	               next offset to apply
//	e:{s}          the build of the shard, set when it is complete
//
// A build is one filling of a shard from nothing. Records name the build they
// belong to, and one of another build counts as absent: what an earlier build
// left behind can never come back.
//
// A value in Redis that cannot be read is rebuilt from the start of the topic,
// alone and beside the following; until then its user is in quarantine.
package users
