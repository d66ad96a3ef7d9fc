package status

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/gocql/gocql"
)

// The statements that write a row are short on purpose: the driver looks them
// up by their text for every row of a batch.
const (
	insertColumns = "INSERT INTO notification_status (bucket,id,device,step,state,at,provider,provider_id,reason,user_hash,place)" +
		" VALUES (?,?,?,?,?,?,?,?,?,?,?) USING TIMESTAMP ?"
	insertPacked = "INSERT INTO notification_status (bucket,id,device,step,state,details) VALUES (?,?,?,?,?,?) USING TIMESTAMP ?"
)

// insertRow is the statement whose values these are, after the bucket.
func (e *encodedRows) insertRow() string {
	if e.packed {
		return insertPacked
	}
	return insertColumns
}

// inserter is the executor that talks to the server.
type inserter struct {
	cluster *cluster
	bound   sync.Pool // of *boundRows
}

// value is one encoded value. It goes to gocql as a pointer into a slice, so
// that binding a row allocates nothing.
type value struct{ data []byte }

// MarshalCQL implements gocql.Marshaler. The table check at start has compared
// the columns' types with what encodedRows holds.
func (v *value) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return v.data, nil }

// boundRows is the memory of a batch's values during one attempt. gocql has
// copied them into its own frame when ExecuteBatch returns, and tries nothing
// by itself afterwards: no retry policy, no speculation.
type boundRows struct {
	values  []value // the bucket, then those of the rows
	args    []any
	entries []gocql.BatchEntry
	used    int // of values
}

func (x *inserter) insert(ctx context.Context, bucket int64, rows *encodedRows) error {
	bound, _ := x.bound.Get().(*boundRows)
	if bound == nil {
		bound = new(boundRows)
	}
	bound.bind(bucket, rows)
	l := x.cluster.use()
	defer l.done()
	b := l.NewBatch(gocql.UnloggedBatch).DefaultTimestamp(false)
	b.Entries = bound.entries
	err := noAnswer(l.ExecuteBatch(b.WithContext(ctx)), x.cluster.opts.Timeout)
	x.cluster.observe(l, classify(err), err)
	bound.clear()
	x.bound.Put(bound)
	return err
}

func (r *boundRows) bind(bucket int64, rows *encodedRows) {
	n, perRow, statement := rows.len(), rows.perRow(), rows.insertRow()
	r.grow(n, perRow)
	r.values[0].data = binary.BigEndian.AppendUint64(r.values[0].data[:0], uint64(bucket))
	start := int32(0)
	for i, end := range rows.ends {
		v := &r.values[1+i]
		arg := i/perRow*(perRow+1) + 1 + i%perRow
		if end < 0 { // no value
			r.args[arg] = gocql.UnsetValue
			continue
		}
		v.data = rows.data[start:end:end]
		r.args[arg] = v
		start = end
	}
	for i := range n {
		args := r.args[i*(perRow+1) : (i+1)*(perRow+1)]
		args[0] = &r.values[0]
		r.entries[i] = gocql.BatchEntry{Stmt: statement, Args: args, Idempotent: true}
	}
}

// grow makes room for n rows of so many values. Values must not move while args
// point to them.
func (r *boundRows) grow(n, perRow int) {
	r.used = 1 + n*perRow
	if cap(r.entries) < n || len(r.values) < r.used {
		n := max(n, 2*cap(r.entries))
		r.values = make([]value, 1+n*perRow)
		r.args = make([]any, n*(perRow+1))
		r.entries = make([]gocql.BatchEntry, n)
	}
	r.entries = r.entries[:n]
}

// clear drops the references to the batch's memory.
func (r *boundRows) clear() { clear(r.values[1:r.used]) }
