package shards

import "github.com/cespare/xxhash/v2"

const (
	// Users is the number of shards that user keys spread over.
	Users = 256
	// Filters is the number of shards that Bloom filters and the token index
	// spread over.
	Filters = 64
)

// UserShard is the shard of a user's keys, 0 to 255. owner is the user id, or
// the device hash of a bare device.
func UserShard(owner string) int { return int(OwnerHash(owner) % Users) }

// OwnerHash is the hash that UserShard is taken from, for callers that need
// both: UserShard(owner) == OwnerHash(owner) mod Users.
func OwnerHash(owner string) uint64 { return xxhash.Sum64String(owner) }

// FilterShard is the Bloom shard of a notification id, 0 to 63.
func FilterShard(id string) int { return int(xxhash.Sum64String(id) % Filters) }

// TokenShard is the shard of a device hash in the token index, 0 to 63.
func TokenShard(deviceHash string) int { return int(xxhash.Sum64String(deviceHash) % Filters) }

// UserTag is the hash tag of user shard s, without braces; it hashes to slot
// 64·s. It panics when s is not between 0 and 255.
func UserTag(s int) string { return tags[s] }

// filterTag is the hash tag of filter shard k, without braces; it hashes to
// slot 256·k. It panics when k is not between 0 and 63.
func filterTag(k int) string { return tags[k*(Users/Filters)] }

// tags[i] is the smallest decimal number whose CRC16 modulo 16384 is 64·i. A
// table and not a search: stored keys depend on it.
var tags = [Users]string{
	"3560", "11423", "40821", "41742", "2464", "10527", "5469", "12258", "1768", "16159", "3017", "7806", "69235", "40331", "2113", "6902",
	"22069", "26878", "574", "1696", "56283", "49436", "18834", "19757", "20261", "4493", "8518", "29498", "21365", "5597", "26368", "49141",
	"48576", "46382", "18617", "530", "27938", "15698", "19713", "12695", "18360", "16594", "47996", "11599", "19264", "17490", "39599", "9458",
	"11467", "3524", "13318", "4529", "10563", "2420", "40602", "41961", "41271", "68375", "7842", "3053", "17019", "13808", "6946", "2157",
	"4129", "13718", "3124", "7935", "69306", "40202", "2020", "6831", "3453", "11510", "40912", "41671", "2557", "10414", "41816", "17419",
	"130", "18217", "46782", "48176", "12295", "19313", "15298", "49072", "11199", "15988", "447", "12985", "9058", "39199", "17090", "13881",
	"1296", "174", "48132", "22469", "19357", "21212", "49036", "56683", "29098", "8118", "4093", "403", "49541", "26768", "5197", "1986",
	"41342", "68246", "7971", "3160", "1878", "5069", "6875", "2064", "8591", "3417", "16559", "1368", "9495", "42", "40731", "41852",
	"8209", "29389", "712", "4382", "26479", "49650", "21474", "975", "265", "1187", "22778", "48223", "4892", "19046", "29899", "8919",
	"3706", "2865", "1079", "5868", "2602", "3961", "69524", "40420", "45842", "41053", "3271", "11332", "5378", "12549", "2375", "10236",
	"2821", "3742", "41560", "68464", "3925", "2646", "4928", "69560", "13409", "4238", "11376", "3235", "40113", "44902", "10272", "2331",
	"48710", "11288", "18471", "756", "39288", "9349", "931", "17381", "17891", "221", "9859", "39998", "16995", "12184", "11998", "15189",
	"356", "18071", "11688", "23928", "17781", "19175", "9749", "39688", "46093", "42882", "621", "18506", "15589", "43986", "12584", "846",
	"45971", "41160", "3342", "11201", "44875", "17308", "2246", "10305", "3635", "2956", "4638", "13009", "2731", "3852", "69417", "40513",
	"16248", "1479", "8280", "3306", "40020", "44831", "9384", "2202", "2912", "3671", "41453", "68557", "3816", "2775", "12149", "5778",
	"4782", "312", "29789", "8609", "5686", "21074", "22868", "26079", "48623", "22378", "1587", "665", "49727", "48844", "802", "21503",
}
