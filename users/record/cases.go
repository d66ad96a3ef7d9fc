package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Open cases: the work that is still to be done about a shard, by the kind of case
// and its subject. A case is opened in the same write as its cause.
const (
	Contested   = "c:" // device hash: more than one user claims the token
	Overtaken   = "o:" // key of a part: its latest record is not what holds
	Evicted     = "e:" // Unix ms ":" key of a part: it is too many, and up to then to be removed
	Stray       = "s:" // Unix ms ":" key of a part: repeated as of then, though its token is not claimed
	Quarantined = "q:" // key of a part: the quarantine's topic is to be told
	Doubted     = "d:" // user: a reader could not read the record
	LostUser    = "u:" // user: the record is to be rebuilt from the topic
	LostToken   = "t:" // device hash: its entry is to be rebuilt
)

// dated is a case about a device as it was registered then.
func dated(kind string, registered time.Time, key string) string {
	return kind + strconv.FormatInt(registered.UnixMilli(), 10) + ":" + key
}

// CutCase splits a case into its kind and its subject.
func CutCase(c string) (kind, name string) {
	n := min(len(Contested), len(c))
	return c[:n], c[n:]
}

// CaseNames reports whether a case is about a user, and says so by the user's id:
// cases about tokens have the hash alone.
func CaseNames(c, user string) bool {
	kind, name := CutCase(c)
	switch kind {
	case Contested, LostToken:
		return false
	case Doubted, LostUser:
		return name == user
	case Evicted, Stray:
		_, name, _ = CutDate(name)
	}
	owner, _, err := PartOf(name)
	return err == nil && owner == user
}

// CutDate splits the subject of an Evicted or Stray case: the device's key, and when
// it was registered.
func CutDate(name string) (registered time.Time, key string, err error) {
	at, key, _ := strings.Cut(name, ":")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return time.Time{}, "", fmt.Errorf("open case: %w", ErrVersion)
	}
	return time.UnixMilli(ms), key, nil
}
