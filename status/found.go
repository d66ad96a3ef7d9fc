package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// checkSchema compares the table with what this version writes, and its TTL
// with opts.TTL. What is missing is a *SchemaError. It makes one attempt to
// connect.
func checkSchema(ctx context.Context, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	c, err := connect(ctx, opts, "")
	if err != nil {
		return err
	}
	defer c.close()
	found, err := readSchema(ctx, askingOf(c.link.Session), opts.Keyspace)
	if err != nil {
		return fmt.Errorf("checking schema of %s: %w", opts.place(), err)
	}
	if missing := found.wrong(opts); missing != nil {
		return &SchemaError{Place: opts.place(), Missing: missing}
	}
	return nil
}

// foundSchema is what the server has.
type foundSchema struct {
	replication string            // empty = no keyspace
	columns     map[string]string // name -> type; empty = no table
	keys        []string
	details     []string // fields of the type of the column details; nil = no type
	ttl         time.Duration
}

func (f *foundSchema) wrong(opts Options) []string {
	switch {
	case f.replication == "":
		return []string{"keyspace " + opts.Keyspace + " does not exist"}
	case len(f.columns) == 0:
		return []string{"table " + tableName + " does not exist"}
	}
	missing := slices.Concat(f.columnsWrong(), f.detailsWrong())
	if f.details == nil {
		missing = append(missing, "type "+detailsType+" does not exist")
	}
	if f.ttl != 0 && f.ttl < opts.TTL {
		missing = append(missing, fmt.Sprintf("default_time_to_live is %d seconds, want at least %d", int64(f.ttl/time.Second), int64(opts.TTL/time.Second)))
	}
	return missing
}

// lacks returns the columns that an earlier version did not have.
func (f *foundSchema) lacks() (names []string) {
	for _, name := range addedColumns {
		if f.columns[name] == "" {
			names = append(names, name)
		}
	}
	return names
}

// columnsWrong names each column that is missing or of another type or place.
// Unknown columns are ignored.
func (f *foundSchema) columnsWrong() (wrong []string) {
	for _, name := range columns {
		switch got := f.columns[name]; got {
		case columnTypes[name]:
		case "":
			wrong = append(wrong, "column "+name+" "+columnTypes[name]+" does not exist")
		default:
			wrong = append(wrong, "column "+name+" is "+got+", want "+columnTypes[name])
		}
	}
	if !slices.Equal(f.keys, keyColumns) {
		wrong = append(wrong, "primary key is ("+strings.Join(f.keys, ", ")+"), want ("+strings.Join(keyColumns, ", ")+")")
	}
	return wrong
}

// detailsWrong says how the type of the column details differs. Fields behind those that
// are known are ignored.
func (f *foundSchema) detailsWrong() []string {
	got, want := f.details, detailsFields
	if got == nil || len(got) >= len(want) && slices.Equal(got[:len(want)], want) {
		return nil
	}
	return []string{"type " + detailsType + " is (" + strings.Join(got, ", ") + "), want (" + strings.Join(want, ", ") + ")"}
}

// unusable is what cannot be made right by adding to what there is.
func (f *foundSchema) unusable() []string {
	wrong := f.detailsWrong()
	if len(f.columns) == 0 { // it is made
		return wrong
	}
	whole := *f
	whole.columns = maps.Clone(f.columns)
	for _, name := range f.lacks() {
		whole.columns[name] = columnTypes[name]
	}
	return append(wrong, whole.columnsWrong()...)
}

// answer is what a query has found: rows, and what went wrong, if anything.
type answer interface {
	Scan(dest ...any) bool
	Close() error
}

// asking asks a server.
type asking func(ctx context.Context, cql string, args ...any) answer

func askingOf(s *gocql.Session) asking {
	return func(ctx context.Context, cql string, args ...any) answer {
		return s.Query(cql, args...).WithContext(ctx).Iter()
	}
}

// one reads the row of an answer that has one or none.
func one(a answer, dest ...any) (found bool, err error) {
	found = a.Scan(dest...)
	return found, a.Close()
}

func readSchema(ctx context.Context, ask asking, keyspace string) (*foundSchema, error) {
	f := &foundSchema{columns: make(map[string]string)}
	var replication map[string]string
	found, err := one(ask(ctx, "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name=?", keyspace), &replication)
	if !found || err != nil {
		return f, err
	}
	if f.replication, err = (SchemaOptions{Replication: replication}).replication(); err != nil {
		return nil, err
	}
	var ttl int // 0 where there is no table
	_, err = one(ask(ctx, "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name=? AND table_name=?", keyspace, tableName), &ttl)
	if err != nil {
		return f, err
	}
	f.ttl = time.Duration(ttl) * time.Second
	var names, types []string
	found, err = one(ask(ctx, "SELECT field_names,field_types FROM system_schema.types WHERE keyspace_name=? AND type_name=?", keyspace, detailsType), &names, &types)
	if err != nil {
		return f, err
	}
	if found {
		f.details = make([]string, min(len(names), len(types)))
		for i := range f.details {
			f.details[i] = names[i] + " " + types[i]
		}
	}
	return f, f.readColumns(ask(ctx, "SELECT column_name,type,kind,position FROM system_schema.columns WHERE keyspace_name=? AND table_name=?", keyspace, tableName))
}

func (f *foundSchema) readColumns(rows answer) error {
	var (
		name, kind, typ string
		position        int
		clustering      = make(map[int]string)
		partition       = make(map[int]string)
	)
	for rows.Scan(&name, &typ, &kind, &position) {
		f.columns[name] = typ
		switch kind {
		case "partition_key":
			partition[position] = name
		case "clustering":
			clustering[position] = name
		}
	}
	for _, part := range []map[int]string{partition, clustering} {
		for _, at := range slices.Sorted(maps.Keys(part)) {
			f.keys = append(f.keys, part[at])
		}
	}
	return rows.Close()
}
