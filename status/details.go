package status

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/push"
)

// details is what a row says besides its key, as it is read from columns of their
// own, or from the column details, a value of the type notification_details.
type details struct {
	at, platform, user, place number
	providerID, reason        string
}

func newDetails() details {
	long := number{size: 8, optional: true}
	return details{at: long, platform: number{size: 1, optional: true}, user: long, place: long}
}

// latest is the later write where a row was written in both formats, by a fleet
// whose setting was changed between: by at, in milliseconds, and packed of two that
// are the same. A row written in one has no time in the other.
func latest(inColumns, packed *details) *details {
	if packed.at.there && (!inColumns.at.there || packed.at.value >= inColumns.at.value) {
		return packed
	}
	return inColumns
}

// tell sets what d has in row.
func (d *details) tell(row *push.Row) {
	row.At = time.Time{}
	if d.at.there {
		row.At = time.UnixMilli(d.at.value).UTC()
	}
	row.Platform, row.UserHash, row.Place = push.Platform(d.platform.value), uint64(d.user.value), uint64(d.place.value)
	row.ProviderID, row.Reason = d.providerID, d.reason
}

// appendDetails writes the column details: each field after its length in 32 bits,
// -1 = null (CQL binary protocol v4, section 7). detailsType has the same order.
func appendDetails(b []byte, r *push.Row) []byte {
	b = appendNumber(b, uint64(r.At.UnixMilli()))
	if r.Platform == push.NoPlatform {
		b = appendNull(b)
	} else {
		b = append(b, 0, 0, 0, 1, byte(r.Platform))
	}
	b = appendOptional(b, cut(r.ProviderID, maxProviderID))
	b = appendOptional(b, cut(r.Reason, maxReason))
	b = appendNumber(b, r.UserHash)
	if r.Place == 0 {
		return appendNull(b)
	}
	return appendNumber(b, r.Place)
}

func appendNull(b []byte) []byte { return append(b, 0xff, 0xff, 0xff, 0xff) }

func appendNumber(b []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0, 0, 0, 8), n)
}

func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return appendNull(b)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// UnmarshalCQL implements gocql.Unmarshaler: it reads the column details. Fields
// that a later release has added to the type come last and are passed over.
func (d *details) UnmarshalCQL(info gocql.TypeInfo, data []byte) error {
	*d = newDetails()
	if len(data) == 0 { // null: the row is in columns
		return nil
	}
	rest := fields{data: data}
	err := errors.Join(
		d.at.UnmarshalCQL(info, rest.next()),
		d.platform.UnmarshalCQL(info, rest.next()),
	)
	d.providerID, d.reason = string(rest.next()), string(rest.next())
	err = errors.Join(err,
		d.user.UnmarshalCQL(info, rest.next()),
		d.place.UnmarshalCQL(info, rest.next()),
	)
	if err == nil && (rest.short || !d.at.there || !d.user.there) {
		err = errors.New("details are cut short, or without a time or a user, which nobody writes")
	}
	return err
}

// fields are those of a value of several.
type fields struct {
	data  []byte
	short bool // it has ended within a field
}

// next is nil for a null, and for one that is not there: a value may have fewer
// fields than its type.
func (f *fields) next() []byte {
	if len(f.data) == 0 {
		return nil
	}
	if len(f.data) < 4 {
		f.data, f.short = nil, true
		return nil
	}
	size := int32(binary.BigEndian.Uint32(f.data))
	f.data = f.data[4:]
	if size < 0 {
		return nil
	}
	if int(size) > len(f.data) {
		f.data, f.short = nil, true
		return nil
	}
	v := f.data[:size]
	f.data = f.data[size:]
	return v
}
