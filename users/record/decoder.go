package record

import "github.com/pushfleet/pushfleet/push"

// Decoder decodes the records of a batch of users. Their devices and names are cut
// from pieces for many users: memory for each alone costs more than all the rest of
// decoding. A piece lives as long as one of its users. The zero value is ready, and
// may be used for one batch after the other. It is not safe for concurrent use.
type Decoder struct {
	devices []push.Device // not cut off yet, as the next
	strings []string
}

// Decode reads into u what the pipeline needs of a packed record, if that is of
// this build: one of another build, or nil, is nobody's, and u is empty. It reuses
// u's slices and leaves u.Limiter alone. The strings are cut from raw: raw must
// not be changed afterwards. The error is ErrVersion or ErrCorrupt, wrapped; then
// u is empty, too.
func (d *Decoder) Decode(raw []byte, build uint64, u *push.User) error {
	if raw == nil {
		forget(u)
		return nil
	}
	got, err := decodeHead(raw)
	if err == nil && got == build {
		_, err = decode(raw, u, nil, d)
	}
	if err != nil || got != build {
		forget(u)
	}
	return err
}

// pieceLen is how many of a kind a piece is for: 9 KiB of devices. A larger one
// would be kept for longer by its last user.
const pieceLen = 64

func (d *Decoder) ofDevices(n int) []push.Device {
	if d == nil {
		return make([]push.Device, 0, n)
	}
	return cut(&d.devices, n)
}

func (d *Decoder) ofStrings(n int) []string {
	if d == nil {
		return make([]string, 0, n)
	}
	return cut(&d.strings, n)
}

// cut cuts an empty list with room for n off a piece, or off a new one.
func cut[T any](piece *[]T, n int) []T {
	if n > pieceLen/4 {
		return make([]T, 0, n)
	}
	if len(*piece) < n {
		*piece = make([]T, pieceLen)
	}
	list := (*piece)[:0:n]
	*piece = (*piece)[n:]
	return list
}

// forget empties u but for its limiter state, and keeps its memory. It says so field
// by field: most are empty, and a copy of the whole costs more than to look.
func forget(u *push.User) {
	u.Devices, u.Limits, u.Quarantine = u.Devices[:0], u.Limits[:0], 0
	p := &u.Preferences
	p.Blocked, p.OptOutAll = false, false
	p.Channels, p.Types, p.Senders, p.OptIns, p.Quiet = p.Channels[:0], p.Types[:0], p.Senders[:0], p.OptIns[:0], p.Quiet[:0]
	u.Profile = push.Profile{}
}
