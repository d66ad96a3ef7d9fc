// Package record is what is known of a user, as a value: what the records of
// push.users say, what follows when one more of them is applied, and what Redis
// keeps of the result. It knows no topic, no Redis and no shard, and has no clock.
//
//   - Key and PartOf: the keys of push.users. CheckDevice and its like: the rules of
//     what stands there.
//   - Change: one record of push.users, read.
//   - Merging applies changes to a User, and to the Claims of a token; it says which
//     open cases follow from them, and which parts stand aside.
//   - User, Claims: what is kept, and its packed form. Decode reads of it what the
//     pipeline needs.
//
// # Keys and values
//
// A record's key is "<user>/<part>"; part is "prefs" or "device:<hash>", hash
// being push.DeviceHash. A user id may contain slashes, a part does not:
// the last slash divides them. Values are JSON; unknown fields are ignored.
//
// A device:
//
//	{"v":1, "platform":"apns", "environment":"production", "app":"shop",
//	 "token":"…", "registered_at":"2026-11-21T10:00:00.000Z", "locale":"en-GB"}
//
// v is the version, 1 when absent. environment is for APNs only, production
// when absent. registered_at has milliseconds. locale may be absent.
//
// Preferences:
//
//	{"v":1, "opt_out_all":false, "opt_out_channels":["push"], "opt_out_types":["promo"]}
//
// What a value that cannot be read means, and a device of a platform that is not
// known, is said in users.
package record
