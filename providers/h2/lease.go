package h2

import "time"

// Lease is the right to send a request: it lapses when another worker may be
// about to send the same. The writer asks right before it writes, and again
// while flow control holds the rest of a body. Lapsed is called by several
// goroutines at once, for each request and with locks held: it must be quick,
// not block, not call the pool, and not allocate.
type Lease interface {
	// Lapsed reports whether nothing may be written any more at now, which
	// comes from time.Now.
	Lapsed(now time.Time) bool
}
