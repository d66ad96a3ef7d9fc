// Package record is what is known of a user, as a value: what the records of
// push.users say, what follows when one more of them is applied, and what Redis
// keeps of the result. It knows no topic, no Redis and no shard, and has no clock.
//
//   - Key and PartOf: the keys of push.users. CheckDevice and its like: the rules of
//     what stands there.
//   - Change: one record of push.users, read.
//   - Merging applies changes to a User, and to the Claims of a token; it says which
//     open cases follow from them, and which parts stand aside.
//   - User, Claims: what is kept, and its packed form. A Decoder reads of it what the
//     pipeline needs.
//
// # Keys and values
//
// A record's key is "<user>/<part>"; part is "prefs", "profile", "limits" or
// "device:<hash>", hash being push.DeviceHash. A user id may contain slashes, a part does not:
// the last slash divides them. Values are JSON; unknown fields are ignored.
//
// A device:
//
//	{"v":1, "platform":"apns", "environment":"production", "app":"shop",
//	 "token":"…", "registered_at":"2026-11-21T10:00:00.000Z", "locale":"en-GB",
//	 "app_version":"12.4.1"}
//
// v is the version, 1 when absent. environment is for APNs only, production
// when absent. registered_at has milliseconds. locale and app_version may be absent.
//
// Preferences (prefs):
//
//	{"v":2, "blocked":false, "opt_out_all":false, "opt_out_channels":["push"],
//	 "opt_out_types":["promo"], "opt_out_senders":["shop"], "opt_in_types":["survey"],
//	 "quiet_hours":[{"from":"22:00", "to":"07:00", "days":["fri","sat"], "types":["news"]}]}
//
// blocked forbids everything, critical messages too. Quiet hours are by the clock of
// the user's zone, and begin on each of the days (none = every day); they end at the
// next "to", which is the next day's unless it is later than "from", and are 24 hours
// if both are equal. Without types they are about all. At most 200 names a list, 20 quiet
// hours, and 200 types in them together.
//
// Profile, of which every field may be absent:
//
//	{"v":1, "locale":"en-GB", "time_zone":"Europe/London", "country":"GB",
//	 "user_number":270000123, "last_activity":"2026-11-21T10:00:00.000Z"}
//
// Personal limits, at most 100, by the name of a rule or a message type:
//
//	{"v":1, "limits":{"promo":2, "all-an-hour":30}}
//
// What a value that cannot be read means, and a device of a platform that is not
// known, is said in users.
//
// # Versions
//
// Processes of two versions run beside each other while a fleet is upgraded, and
// none may take a user who forbids something for one who does not. So what a reader
// may overlook is decided for each thing:
//
//   - Preferences with anything but opt_out_all, opt_out_channels and opt_out_types are
//     written as version 2. A registry that knows only version 1 ignores unknown fields,
//     and would take a blocked user for one who allows everything; at version 2 it puts
//     the part in quarantine: the last preferences that it could read stand, else all but
//     critical messages wait. Preferences that version 1 can say are still written so.
//   - Packed, blocked, senders and quiet hours have section 4, which no reader may skip:
//     a worker that does not know it takes the record for unreadable, and the user's
//     messages wait.
//   - Opt-ins have section 131, which may be skipped: they only allow. A worker without
//     it has no configuration either that asks for consent.
//   - Profile, personal limits and app versions (sections 132 to 134) may be skipped:
//     they are facts, and forbid nothing. That is why a personal limit is at least 1:
//     to want nothing is an opt-out. A worker that skips them has no use
//     for them either: it knows no quiet hours that need a zone.
//   - That one of these facts cannot be read has section 135. In section 3 an older
//     worker would take it for an unread device.
//
// What an older registry does not know as a part's key ("ada/profile") it passes over
// for good, with a line in its log; optional sections it keeps as they are, also a
// version of a device that it has removed, which is then left out. So registries are
// upgraded before anybody writes the new parts, or the new registry is told to build
// anew. Workers come before registries, as ever.
package record
