package h2

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Trouble is why a dial failed, or why a connection ended that we did not
// close: a name that does not resolve, a refused connection, a TLS alert, a
// server without HTTP/2, a GOAWAY.
type Trouble struct {
	// Cause is printable ASCII, at most 256 bytes, and holds nothing of a
	// request. Empty = there was no trouble.
	Cause string
	At    time.Time
	// Lasts says that no connection has had its first answer since.
	Lasts bool
}

// Of a pool's troubles this many lines are logged at once, and then one in each
// pause: a provider that is down for a day need not fill the log.
const (
	troubleLines = 3
	troublePause = 10 * time.Second
)

// troubles remembers the latest trouble of a pool, and logs.
type troubles struct {
	log *slog.Logger // nil = no log

	mu     sync.Mutex
	last   Trouble
	lines  int       // that may be logged at once
	filled time.Time // when the last of them was earned
	untold int       // troubles since the last line
}

func (t *troubles) begin(log *slog.Logger) { t.log, t.lines = log, troubleLines }

// dial notes a failed dial.
func (t *troubles) dial(now time.Time, err error) {
	t.note(now, err, true, slog.LevelWarn, "cannot connect")
}

// end notes the end of a connection. answered says that it had an answer, lost
// how many requests are without one because of it.
func (t *troubles) end(now time.Time, err error, answered bool, lost int) {
	level := slog.LevelWarn
	if answered && lost == 0 {
		level = slog.LevelInfo // servers do that
	}
	t.note(now, err, !answered, level, "connection ended", "unanswered", lost)
}

func (t *troubles) note(now time.Time, err error, lasts bool, level slog.Level, what string, more ...any) {
	cause := plainText(err.Error(), maxCause)
	t.mu.Lock()
	t.last = Trouble{Cause: cause, At: now, Lasts: t.last.Lasts || lasts}
	earned := int(now.Sub(t.filled) / troublePause)
	if t.lines += earned; t.lines >= troubleLines {
		t.lines, t.filled = troubleLines, now
	} else {
		t.filled = t.filled.Add(time.Duration(earned) * troublePause)
	}
	if t.log == nil || t.lines == 0 {
		t.untold++
		t.mu.Unlock()
		return
	}
	untold := t.untold
	t.lines, t.untold = t.lines-1, 0
	t.mu.Unlock()
	args := append([]any{"cause", cause}, more...)
	if untold > 0 {
		args = append(args, "untold", untold)
	}
	t.log.Log(context.Background(), level, what, args...)
}

// answered: a connection had its first answer.
func (t *troubles) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.Lasts = false
}

func (t *troubles) latest() Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Longest texts that are kept of errors, and of what a server says in its own
// words.
const (
	maxCause = 256
	maxWords = 128
)

// plainText turns a text into one line of printable ASCII of limited length.
// Names in certificates and errors of resolvers are untrusted.
func plainText(s string, most int) string {
	b := make([]byte, 0, min(len(s), most))
	for _, r := range s {
		switch {
		case len(b) == most:
			return string(b)
		case r == '\n':
			b = append(b, ';')
		case r < ' ' || r > '~':
			b = append(b, '?')
		default:
			b = append(b, byte(r))
		}
	}
	return string(b)
}

// hidden replaces a word that is not shown.
const hidden = "***"

// serversWords is what a server says, cleaned and cut. It may repeat what it
// was sent: so what could be a part of a token, a key or a one-time password,
// which is every word with three digits or over 40 bytes, is not shown.
func serversWords(said []byte) string {
	s := plainText(string(said[:min(len(said), maxWords)]), maxWords)
	out, word, digits := make([]byte, 0, len(s)), 0, 0
	end := func(cut bool) { // of the word that begins at out[word]
		if len(out) > word && (cut || digits >= 3 || len(out)-word > 40) {
			out = append(out[:word], hidden...)
		}
	}
	for i := range len(s) {
		if !ofWord(s[i]) {
			end(false)
			out = append(out, s[i])
			word, digits = len(out), 0
			continue
		}
		if out = append(out, s[i]); '0' <= s[i] && s[i] <= '9' {
			digits++
		}
	}
	end(len(said) > maxWords)
	return string(out)
}

func ofWord(b byte) bool { return nameByte[b|0x20] || b == ':' || b == '/' || b == '=' }
