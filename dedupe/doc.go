// Package dedupe remembers, for a horizon of 6 to 12 hours, which notification
// ids are finished: Bloom filters in Redis, in windows of 6 h of which the
// current and the previous one are asked; in the last 20 minutes of a window the
// next one too, which has begun for workers whose clocks are ahead. An id that
// tells that it was minted in the current window, after its first 15 minutes, is in that
// one if it is in either, and is not asked about in the previous one.
//
// The answers are hints. "No" is certain and saves a read of the status store;
// "maybe" costs one. Whatever happens to a filter (full, wiped) must therefore
// end in "maybe": a wrong "maybe" costs a read, a wrong "no" is sent twice.
//
// So a filter is believed only if it proves to be whole. A filter that was
// made before its window began holds an item that says so, the sentinel, and
// every question asks for it too. A filter made later, after Redis lost its
// memory, lacks it: then only ids that were minted after the filter was born
// can be new, and a UUIDv7 tells when that was.
//
// A filter that was full when an id came is marked as such, by a key beside it
// that every question asks for too: it says "maybe" to everything until its
// window is gone. So no filter that missed an add is ever trusted, whoever
// asks; Add says why.
//
// Memory in Redis: 14.4 bits per id at an error rate of 0.001, so 36 MB for a
// window of 20 million ids; three windows exist at a time (previous, current
// and, made ahead, the next).
package dedupe
