package calls

import (
	"log/slog"
	"sync/atomic"
)

// Refused is what a provider refuses of us. The zero value is nothing.
type Refused struct {
	Word   string // the provider's own
	Key    string // which credential it is, without giving it away
	Remedy string // what an operator can do
}

// Refusal is whether a provider refuses the credential of a route. It says so in the
// log once, and again after an acceptance or a new credential. It is safe for
// concurrent use, and costs an acceptance one look.
type Refusal struct {
	log  *slog.Logger // nil = nothing is logged
	said atomic.Pointer[Refused]
}

// NewRefusal makes one; log names the route.
func NewRefusal(log *slog.Logger) *Refusal { return &Refusal{log: log} }

// Note is called when the provider refuses the credential with this word of its own.
// key names it without giving it away: a key id, an account's address. remedy is what
// an operator can do.
func (f *Refusal) Note(word, key, remedy string) {
	if f.said.Swap(&Refused{word, key, remedy}) == nil && f.log != nil {
		f.log.Error("the provider refuses our credential: the route is halted until its file changes or a probe is accepted", "key", key, "answer", word, "do", remedy)
	}
}

// Clear is called when the provider accepts it, or another one is in use.
func (f *Refusal) Clear() {
	if f.said.Load() != nil {
		f.said.Store(nil)
	}
}

// Said is the provider's latest refusal.
func (f *Refusal) Said() Refused {
	if r := f.said.Load(); r != nil {
		return *r
	}
	return Refused{}
}

// Word is the provider's latest word; empty = it refuses nothing.
func (f *Refusal) Word() string { return f.Said().Word }
