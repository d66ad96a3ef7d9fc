package gateway

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
)

// ahead is by how much the time in an id may be later than our clock. The dedupe filter
// believes ids that are younger than itself to be new; one from the future would be
// believed for as long, whatever became of it before.
const ahead = time.Minute

// newID mints an id at a time.
func newID(at time.Time) (string, error) {
	u, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	stamp(&u, at)
	return u.String(), nil
}

// stamp puts a time into a UUIDv7.
func stamp(u *uuid.UUID, at time.Time) {
	ms := uint64(at.UnixMilli())
	binary.BigEndian.PutUint32(u[0:], uint32(ms>>16))
	binary.BigEndian.PutUint16(u[4:], uint16(ms))
	u[6] = 7<<4 | u[6]&0xf
	u[8] = 2<<6 | u[8]&0x3f
}

// owner is whom a message is for.
type owner struct {
	user   string
	device string // hash of the token; empty = all devices of the user
}

// key is the owner's key in Kafka and in the status store: what a worker calls the owner.
func (o owner) key() string {
	if o.user != "" {
		return o.user
	}
	return o.device
}

func ownerOf(m *push.Message) owner {
	o := owner{user: m.UserID}
	if m.Device.Token != "" {
		o.device = push.DeviceHash(m.Device.Platform, m.Device.Token)
	}
	return o
}
