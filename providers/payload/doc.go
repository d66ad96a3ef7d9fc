// Package payload writes JSON for push providers: strings, members and the
// deep merge of a producer's raw object into the one we built. It works on
// bytes and appends to the caller's buffer. It allocates nothing of its own but
// to index objects of many members.
//
// Raw objects given to it must be valid JSON without duplicate keys; the
// message decoder has seen to that. It does not check again, but no input
// makes it panic or read out of bounds.
package payload
