// Package segments knows which users are in which segment: a set of user
// numbers per segment, in groups such as "lifecycle" with the segments "new"
// and "active". In an exclusive group a user is in one segment at most.
//
// A Set is one version of all groups. It never changes, so any number of
// goroutines may ask it at once, without locks. A Builder makes one from
// lists of numbers, Read loads one from a file, and a Watcher keeps the newest one
// of a Source, which is a file, a URL or an object in S3-compatible storage.
//
// # User numbers
//
// Users are numbers from 0 to 4,294,967,295 here. Where the number of a user
// comes from is said per group (Numbering): it is in the user's record, or is
// the user id itself where ids are decimal numbers. A hash of the id is refused
// for exclusive groups: of 270 million ids, 16 million have the 32-bit hash of
// another one, and would be in its segment.
//
// # File
//
// All integers are little-endian.
//
//	offset  bytes
//	0       8      "PFSEGMNT"
//	8       4      version of the format: 1
//	12      4      n, the length of the manifest: 1 to 1,048,576
//	16      n      the manifest, JSON (type Manifest)
//	16+n    32     SHA-256 of all bytes before: the file's checksum
//	48+n           one section per segment, in the order of the manifest
//
// A section is one bitmap in the portable serialization of Roaring bitmaps
// (https://github.com/RoaringBitmap/RoaringFormatSpec). The manifest has its
// length, its SHA-256 and its number of users, so the checksum stands for the
// whole content, and a reader of the first bytes knows what will follow. Nothing
// follows the last section.
//
// Files come from other machines, so a reader believes nothing: it allocates in
// proportion to what it has received and never more than a limit, checks every
// container of every bitmap in linear time, and checks again that exclusive
// groups are exclusive. A reader refuses a format version, a field of the manifest or
// a numbering that it does not know; whoever adds one raises the version of the format.
//
// # Versions
//
// A file has a version, by default the time when it was built (20261123115157,
// UTC). A Watcher takes only versions that are greater than its own, so that
// workers behind different caches do not go back and forth. Two files of one version with
// different checksums are a mistake, and the second one is refused.
package segments
