package fanout

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
)

// Slices is how many parts the users of every audience are in, by the hash of their ids.
// It never changes: the ids of notifications depend on it.
const Slices = 1 << sliceBits

const sliceBits = 10

// SliceOf is the slice of a user: the upper bits of push.UserHash, so that a part of an
// audience, of which there are a power of two, is a run of slices.
func SliceOf(user string) int { return int(push.UserHash(user) >> (64 - sliceBits)) }

// The times in the ids of a message's notifications: a second for each slice, so that
// one of ten million has ten thousand ids in a second, and the rows of what is sent
// together lie together in the status store (its slices of time are 10 s, of 16 shards
// each). None is in the future, as the dedupe filter believes ids that are younger than
// itself to be new: a message's own id may be a minute ahead of the gateway's clock.
const (
	perSlice = time.Second
	behind   = time.Minute // of the message's time, the last slice's ids
)

// Spread is how far back of their message's time the ids of its notifications reach.
const Spread = behind + (Slices-1)*perSlice

// errMessageID says that a message's id has no time in it, on which those of its
// notifications depend.
var errMessageID = errors.New("the id of a message for many receivers must be a UUIDv7, in lower case")

// ParseMessageID reads the id of a message.
func ParseMessageID(id string) (uuid.UUID, error) {
	u, err := uuid.Parse(id)
	if err != nil || u.String() != id || checkMessageID(u) != nil {
		return uuid.UUID{}, errMessageID
	}
	return u, nil
}

func checkMessageID(u uuid.UUID) error {
	if u.Version() != 7 || u.Variant() != uuid.RFC4122 {
		return errMessageID
	}
	if least := Spread.Milliseconds(); millis(u) < least {
		return fmt.Errorf("the time in the message's id is less than %d ms after 1970", least)
	}
	return nil
}

// MessageOf is the id by which a message is known to fan-outs: that which its sender gave
// it counts for this sender, app and audience alone, as the id of a notification counts for
// its user. So nobody's message is in the way of another one that has its id, and nobody
// can name another's. It has the time of the sender's id.
func MessageOf(id uuid.UUID, sender, app, audience string) uuid.UUID {
	sum := sha256.New()
	sum.Write(append(id[:], messageLabel))
	for _, part := range [...]string{sender, app, audience} {
		sum.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		io.WriteString(sum, part) // a hash takes everything
	}
	s := sum.Sum(nil)
	id[6], id[7], id[8] = 7<<4|s[0]&0xf, s[1], 2<<6|s[2]&0x3f
	copy(id[9:], s[3:])
	return id
}

// millis is the time in a UUIDv7, in milliseconds since 1970.
func millis(u uuid.UUID) int64 {
	return int64(u[0])<<40 | int64(u[1])<<32 | int64(u[2])<<24 | int64(u[3])<<16 | int64(u[4])<<8 | int64(u[5])
}

// idBytes is the length of an id as text.
const idBytes = 36

// The labels keep the sums of ids apart from others over the same bytes.
const (
	sumLabel     = 'f'
	messageLabel = 'm'
)

// AppendID appends the id of a user's notification of a message: a UUIDv7 in form, which
// depends on the two and on nothing else. It allocates nothing for users of up to 128
// bytes.
func AppendID(out []byte, message uuid.UUID, user string) []byte {
	var memory [len(message) + 1 + maxUser]byte
	text := append(memory[:0], message[:]...)
	text = append(append(text, sumLabel), user...)
	sum := sha256.Sum256(text)
	at := uint64(millis(message) - timeBehind(SliceOf(user)).Milliseconds())
	id := [16]byte{byte(at >> 40), byte(at >> 32), byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at),
		7<<4 | sum[0]&0xf, sum[1], 2<<6 | sum[2]&0x3f}
	copy(id[9:], sum[3:])
	var digits [32]byte
	hex.Encode(digits[:], id[:])
	out = append(append(out, digits[:8]...), '-')
	out = append(append(out, digits[8:12]...), '-')
	out = append(append(out, digits[12:16]...), '-')
	out = append(append(out, digits[16:20]...), '-')
	return append(out, digits[20:]...)
}

// ID is AppendID as a string.
func ID(message uuid.UUID, user string) string {
	return string(AppendID(make([]byte, 0, idBytes), message, user))
}

// timeBehind is how far the ids of a slice are behind their message.
func timeBehind(slice int) time.Duration {
	return behind + time.Duration(Slices-1-slice)*perSlice
}
