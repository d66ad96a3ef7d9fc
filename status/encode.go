package status

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/push"
)

// Longest values stored, in bytes. Ids come checked (64, or "kafka:" and a
// hash); the others are cut, so that no provider's word can make a row that
// the server refuses for ever.
const (
	maxID         = 1024
	maxDevice     = 64
	maxReason     = 256
	maxProviderID = 256
)

// cut returns at most the first n bytes of s, and always valid UTF-8: the
// server would refuse anything else every time.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "")
}

// columns are those of the table that this version reads, bucket first.
var columns = [...]string{"bucket", "id", "device", "step", "state", "at", "provider", "provider_id", "reason", "user_hash", "place", "details"}

// encodedRows are rows encoded as the values of their inserts, one after the
// other. The bucket, which is the same for a whole batch, is not among them.
type encodedRows struct {
	packed bool // what a row says besides its key is one value
	data   []byte
	ends   []int32 // end of each value in data; negative = no value
}

// Values of a row: its key without the bucket, what it says, its write time.
const (
	valuesOfColumns = 4 + 6 + 1
	valuesOfPacked  = 4 + 1 + 1
)

// perRow is how many values append writes.
func (e *encodedRows) perRow() int {
	if e.packed {
		return valuesOfPacked
	}
	return valuesOfColumns
}

func (e *encodedRows) len() int { return len(e.ends) / e.perRow() }

func (e *encodedRows) reset() { e.data, e.ends = e.data[:0], e.ends[:0] }

// append encodes one row. Nothing of r is kept: its strings are cut from
// records whose memory is reused.
func (e *encodedRows) append(r *push.Row) {
	e.text(cut(r.ID, maxID))
	e.text(cut(r.Device, maxDevice))
	e.data = binary.BigEndian.AppendUint16(e.data, uint16(r.Step))
	e.end()
	e.data = append(e.data, byte(r.State))
	e.end()
	if e.packed {
		e.data = appendDetails(e.data, r)
		e.end()
	} else {
		e.columns(r)
	}
	// The write time is the row's own, so that writing it again is the same
	// write, and not the client's clock at whatever attempt.
	e.data = binary.BigEndian.AppendUint64(e.data, uint64(r.At.UnixMicro()))
	e.end()
}

// columns encodes what r says besides its key, each in a column of its own.
func (e *encodedRows) columns(r *push.Row) {
	e.data = binary.BigEndian.AppendUint64(e.data, uint64(r.At.UnixMilli()))
	e.end()
	if r.Platform == push.NoPlatform {
		e.none()
	} else {
		e.data = append(e.data, byte(r.Platform))
		e.end()
	}
	e.optional(cut(r.ProviderID, maxProviderID))
	e.optional(cut(r.Reason, maxReason))
	e.data = binary.BigEndian.AppendUint64(e.data, r.UserHash)
	e.end()
	if r.Place == 0 {
		e.none()
	} else {
		e.data = binary.BigEndian.AppendUint64(e.data, r.Place)
		e.end()
	}
}

func (e *encodedRows) text(s string) {
	e.data = append(e.data, s...)
	e.end()
}

// optional leaves an empty text out: a null would be stored as a tombstone.
func (e *encodedRows) optional(s string) {
	if s == "" {
		e.none()
		return
	}
	e.text(s)
}

func (e *encodedRows) end()  { e.ends = append(e.ends, int32(len(e.data))) }
func (e *encodedRows) none() { e.ends = append(e.ends, ^int32(len(e.data))) }

// sortRows orders the rows of one notification by device, step and state, as
// Cassandra clusters them.
func sortRows(rows []push.Row) {
	slices.SortFunc(rows, func(a, b push.Row) int {
		if c := strings.Compare(a.Device, b.Device); c != 0 {
			return c
		}
		if c := int(a.Step) - int(b.Step); c != 0 {
			return c
		}
		return int(a.State) - int(b.State)
	})
}
