package shards

import "strconv"

// QuotaKey holds what the gateways of a fleet have counted of a sender in windows of so
// many seconds: of every second one under the same key, which the next but one replaces.
// All keys of a sender are in one slot.
func QuotaKey(fleet, sender string, seconds, window int64) string {
	return "q:{" + fleet + ":" + sender + "}:" + strconv.FormatInt(seconds, 10) + ":" + strconv.FormatInt(window&1, 10)
}

// GatewaysKey holds the gateways of a fleet that run: a sorted set by the time at which
// they said so.
func GatewaysKey(fleet string) string { return "g:" + fleet }

// FirstPrefix begins the keys under which the gateways of a fleet keep where the first
// records of messages are. Each is in a slot of its own.
func FirstPrefix(fleet string) string { return "i:" + fleet + ":" }

// RecipientsKey holds how many receivers a sender's messages to topics have had on a day:
// a hash.
func RecipientsKey(fleet, sender string) string { return "q:{" + fleet + ":" + sender + "}:r" }
