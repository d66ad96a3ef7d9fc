package status

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// wire is the rest of a message of Cassandra's protocol.
type wire struct{ rest []byte }

func (w *wire) cut(n int) []byte {
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

func (w *wire) uint16() uint16 { return binary.BigEndian.Uint16(w.cut(2)) }
func (w *wire) uint32() uint32 { return binary.BigEndian.Uint32(w.cut(4)) }
func (w *wire) short() []byte  { return w.cut(int(w.uint16())) }

// long is nil for a null and for a value that is not set.
func (w *wire) long() []byte {
	n := int32(w.uint32())
	if n < 0 {
		return nil
	}
	return w.cut(int(n))
}

func (w *wire) list() (values [][]byte) {
	for range w.uint16() {
		values = append(values, w.long())
	}
	return values
}

// values are those after the text or the name of a query.
func (w *wire) values() [][]byte {
	w.cut(2) // consistency
	if w.cut(1)[0]&1 == 0 {
		return nil
	}
	return w.list()
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b[:len(b):len(b)], uint16(len(s))), s...)
}

// appendLong writes nil as a null.
func appendLong(b, v []byte) []byte {
	if v == nil {
		return append(b, 255, 255, 255, 255)
	}
	return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
}

// Results without rows.
var (
	resultVoid     = []byte{0, 0, 0, 1}
	resultKeyspace = []byte{0, 0, 0, 3}
)

// Types of columns and values, as the protocol names them.
var (
	typeBigint    = []byte{0, 2}
	typeInt       = []byte{0, 9}
	typeTimestamp = []byte{0, 11}
	typeUUID      = []byte{0, 12}
	typeText      = []byte{0, 13}
	typeInet      = []byte{0, 16}
	typeSmallint  = []byte{0, 19}
	typeTinyint   = []byte{0, 20}
	typeTexts     = []byte{0, 32, 0, 13}
	typeTextMap   = []byte{0, 33, 0, 13, 0, 13}
)

type column struct {
	name string
	of   []byte
}

// typeOf is a user's type with these fields.
func typeOf(fields []column) []byte {
	b := appendText(appendText([]byte{0, 48}, "k"), detailsType)
	b = binary.BigEndian.AppendUint16(b, uint16(len(fields)))
	for _, f := range fields {
		b = append(appendText(b, f.name), f.of...)
	}
	return b
}

// statement is a statement that a node can answer.
type statement struct {
	text           string
	values, result []column
}

var (
	inKeyspace = []column{{"keyspace_name", typeText}}
	inTable    = []column{{"keyspace_name", typeText}, {"table_name", typeText}}
	aboutNode  = []column{{"key", typeText}, {"data_center", typeText}, {"rack", typeText}, {"host_id", typeUUID}, {"release_version", typeText},
		{"partitioner", typeText}, {"rpc_address", typeInet}, {"broadcast_address", typeInet}, {"schema_version", typeUUID}}
	inBucket   = []column{{"bucket", typeBigint}, {"id", typeText}, {"device", typeText}, {"step", typeSmallint}, {"state", typeTinyint}}
	aboutRow   = []column{{"at", typeTimestamp}, {"provider", typeTinyint}, {"provider_id", typeText}, {"reason", typeText}, {"user_hash", typeBigint}, {"place", typeBigint}}
	asDetails  = []column{{"details", typeOf(aboutRow)}}
	writeTime  = []column{{"[timestamp]", typeBigint}}
	rowColumns = slices.Concat(inBucket[1:], aboutRow, asDetails)
)

var statements = []statement{
	{"SELECT * FROM system.local WHERE key='local'", nil, aboutNode},
	{"SELECT key FROM system.local", nil, aboutNode[:1]},
	{"SELECT * FROM system.peers_v2", nil, aboutNode[:1]},
	{"SELECT replication FROM system_schema.keyspaces WHERE keyspace_name=?", inKeyspace, []column{{"replication", typeTextMap}}},
	{"SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name=? AND table_name=?", inTable, []column{{"default_time_to_live", typeInt}}},
	{"SELECT column_name,type,kind,position FROM system_schema.columns WHERE keyspace_name=? AND table_name=?", inTable,
		[]column{{"column_name", typeText}, {"type", typeText}, {"kind", typeText}, {"position", typeInt}}},
	{"SELECT field_names,field_types FROM system_schema.types WHERE keyspace_name=? AND type_name=?", []column{{"keyspace_name", typeText}, {"type_name", typeText}},
		[]column{{"field_names", typeTexts}, {"field_types", typeTexts}}},
	{selectRows, []column{{"bucket", typeBigint}, {"id", typeTexts}}, rowColumns},
	{insertColumns, slices.Concat(inBucket, aboutRow, writeTime), nil},
	{insertPacked, slices.Concat(inBucket, asDetails, writeTime), nil},
}

func statementOf(text string) (statement, error) {
	for _, s := range statements {
		if s.text == text {
			return s, nil
		}
	}
	return statement{}, frame{gocql.ErrCodeInvalid, "unknown statement " + text}
}

// appendColumns writes names and types.
func appendColumns(b []byte, list []column) []byte {
	b = appendText(appendText(b, "k"), tableName)
	for _, c := range list {
		b = append(appendText(b, c.name), c.of...)
	}
	return b
}

// metadata begins with flags, which say that one table is given for all
// columns, and the number of columns.
func metadata(b []byte, list []column) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 1), uint32(len(list)))
}

// prepared is the answer to preparing the statement: its first value is the
// partition key.
func (s statement) prepared() []byte {
	b := metadata(appendText([]byte{0, 0, 0, 4}, s.text), s.values)
	if len(s.values) > 0 {
		b = append(b, 0, 0, 0, 1, 0, 0)
	} else {
		b = append(b, 0, 0, 0, 0)
	}
	b = appendColumns(b, s.values)
	return appendColumns(metadata(b, s.result), s.result)
}

// head is what comes before the number of rows.
func (s statement) head() []byte {
	return appendColumns(metadata([]byte{0, 0, 0, 2}, s.result), s.result)
}

func (s statement) rows(rows [][]any) []byte {
	b := s.head()
	b = binary.BigEndian.AppendUint32(b, uint32(len(rows)))
	for _, row := range rows {
		for _, v := range row {
			b = appendLong(b, cell(v))
		}
	}
	return b
}

// composite is a value of several fields.
type composite []any

// cell encodes one value; nil is a null.
func cell(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case []byte:
		return v
	case composite:
		b := []byte{}
		for _, of := range v {
			b = appendLong(b, cell(of))
		}
		return b
	case string:
		return []byte(v)
	case int8:
		return []byte{byte(v)}
	case int16:
		return binary.BigEndian.AppendUint16(nil, uint16(v))
	case int:
		return binary.BigEndian.AppendUint32(nil, uint32(v))
	case int64:
		return binary.BigEndian.AppendUint64(nil, uint64(v))
	case time.Time:
		return binary.BigEndian.AppendUint64(nil, uint64(v.UnixMilli()))
	case [16]byte:
		return v[:]
	case net.IP:
		return v
	case []string:
		b := binary.BigEndian.AppendUint32(nil, uint32(len(v)))
		for _, of := range v {
			b = appendLong(b, []byte(of))
		}
		return b
	case map[string]string:
		b := binary.BigEndian.AppendUint32(nil, uint32(len(v)))
		for key, value := range v {
			b = appendLong(appendLong(b, []byte(key)), []byte(value))
		}
		return b
	}
	panic(fmt.Sprintf("no encoding of %T", v))
}
