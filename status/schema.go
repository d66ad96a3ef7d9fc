package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/deploy/cassandra"
)

// tableName is the status table's name in its keyspace.
const tableName = "notification_status"

// columnTypes are the table's columns as system_schema spells their types.
// insert.go encodes for exactly these.
var columnTypes = map[string]string{
	"bucket": "bigint", "id": "text", "device": "text", "step": "smallint", "state": "tinyint",
	"at": "timestamp", "provider": "tinyint", "provider_id": "text", "reason": "text", "user_hash": "bigint",
}

// keyColumns are the partition key and the clustering columns, in order.
var keyColumns = []string{"bucket", "id", "device", "step", "state"}

// SchemaError says what is missing or different in the schema: the store
// cannot be used until a person has applied it.
type SchemaError struct {
	Place   string   // hosts and keyspace
	Missing []string // what is missing or different, one phrase each
}

func (e *SchemaError) Error() string {
	return "schema of " + e.Place + ": " + strings.Join(e.Missing, "; ") + " (pushctl schema apply)"
}

// SchemaOptions are the parts of the schema that differ between installations.
type SchemaOptions struct {
	// Replication of a new keyspace, as in CQL: {"class":
	// "NetworkTopologyStrategy", "dc1": "3"}. nil = one copy, for a single node.
	Replication map[string]string
	TTL         time.Duration // of rows, whole seconds, at least 1 hour; 0 = 30 days
}

// SchemaChange is one thing that ApplySchema looked at.
type SchemaChange struct {
	Object string `json:"object"` // "keyspace pushfleet", "table pushfleet.notification_status"
	Action string `json:"action"` // "created", "exists", "altered"
	Detail string `json:"detail,omitempty"`
}

// SchemaText is the schema as CQL statements for this keyspace, replication
// and TTL.
func SchemaText(keyspace string, opts SchemaOptions) (string, error) {
	statements, err := schemaStatements(keyspace, opts)
	if err != nil {
		return "", err
	}
	return strings.Join(statements[:], ";\n\n") + ";\n", nil
}

// The places in schema.cql that are this installation's own.
const (
	fileKeyspace    = "EXISTS pushfleet"
	fileReplication = "{'class': 'SimpleStrategy', 'replication_factor': '1'}"
	fileWindow      = "'compaction_window_size': '24'"
	fileTTL         = "default_time_to_live = 2592000"
)

func schemaStatements(keyspace string, opts SchemaOptions) (statements [2]string, err error) {
	if !keyspaceName.MatchString(keyspace) {
		return statements, fmt.Errorf("keyspace %q, want lower-case letters, digits and _, at most 48", keyspace)
	}
	ttl, err := opts.ttl()
	if err != nil {
		return statements, err
	}
	replication, err := opts.replication()
	if err != nil {
		return statements, err
	}
	text := strings.NewReplacer(
		fileKeyspace, "EXISTS "+keyspace,
		fileReplication, replication,
		fileWindow, fmt.Sprintf("'compaction_window_size': '%d'", windowHours(ttl)),
		fileTTL, fmt.Sprintf("default_time_to_live = %d", int64(ttl/time.Second)),
	).Replace(cassandra.Schema())
	parts := splitStatements(text)
	if len(parts) != len(statements) {
		return statements, fmt.Errorf("schema.cql holds %d statements, want %d", len(parts), len(statements))
	}
	copy(statements[:], parts)
	return statements, nil
}

// splitStatements returns the statements of a CQL text, each with the comments
// before it. A semicolon ends one unless it stands in a comment.
func splitStatements(text string) (statements []string) {
	var current []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		code, _, _ := strings.Cut(line, "--")
		if end := strings.IndexByte(code, ';'); end >= 0 {
			current = append(current, line[:end])
			statements = append(statements, strings.TrimSpace(strings.Join(current, "\n")))
			current = nil
			continue
		}
		current = append(current, line)
	}
	return statements
}

func (o SchemaOptions) ttl() (time.Duration, error) {
	const cassandraMost = 20 * 365 * 24 * time.Hour
	switch ttl := o.TTL; {
	case ttl == 0:
		return 30 * 24 * time.Hour, nil
	case ttl < time.Hour || ttl > cassandraMost || ttl%time.Second != 0:
		return 0, fmt.Errorf("status TTL %s, want whole seconds from 1 hour to 20 years", ttl)
	default:
		return ttl, nil
	}
}

// windowHours is a thirtieth of the TTL, rounded up.
func windowHours(ttl time.Duration) int {
	return int((ttl + 30*time.Hour - 1) / (30 * time.Hour))
}

func (o SchemaOptions) replication() (string, error) {
	if o.Replication == nil {
		return fileReplication, nil
	}
	if o.Replication["class"] == "" {
		return "", errors.New("replication has no class")
	}
	keys := slices.SortedFunc(maps.Keys(o.Replication), func(a, b string) int {
		if a == "class" || b == "class" { // first, as everybody writes it
			return strings.Compare(strconv.FormatBool(a != "class"), strconv.FormatBool(b != "class"))
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for i, k := range keys {
		if strings.ContainsAny(k+o.Replication[k], "'\n;") {
			return "", fmt.Errorf("replication option %q has a character that CQL does not take", k)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "'%s': '%s'", k, o.Replication[k])
	}
	return "{" + b.String() + "}", nil
}

// ApplySchema makes the keyspace and the table unless they exist, sets the TTL
// of a table that has another, and reports what it did. It may be run again at
// any time. It never changes the replication of a keyspace that exists (that
// needs a repair) and refuses a table with other columns with a *SchemaError.
// It makes one attempt to connect.
func ApplySchema(ctx context.Context, opts Options, schema SchemaOptions) ([]SchemaChange, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	statements, err := schemaStatements(opts.Keyspace, schema)
	if err != nil {
		return nil, err
	}
	ttl, err := schema.ttl()
	if err != nil {
		return nil, err
	}
	opts.Timeout = max(opts.Timeout, schemaTimeout)
	c, err := connect(ctx, opts, "")
	if err != nil {
		return nil, err
	}
	defer c.close()
	apply := applying{ctx: ctx, session: c.link.Session, opts: opts}
	changes, err := apply.run(statements, ttl)
	if err != nil {
		return changes, fmt.Errorf("applying schema to %s: %w", opts.place(), err)
	}
	return changes, nil
}

// schemaTimeout is the least that a change of the schema is given: it takes
// seconds where an insert takes milliseconds.
const schemaTimeout = 30 * time.Second

// applying is an ApplySchema in progress.
type applying struct {
	ctx     context.Context
	session *gocql.Session
	opts    Options
}

func (a *applying) run(statements [2]string, ttl time.Duration) ([]SchemaChange, error) {
	before, err := readSchema(a.ctx, a.session, a.opts.Keyspace)
	if err != nil {
		return nil, err
	}
	keyspace := SchemaChange{Object: "keyspace " + a.opts.Keyspace, Action: "exists", Detail: before.replication}
	if before.replication == "" {
		keyspace.Action = "created"
		if err := a.exec(statements[0]); err != nil {
			return nil, err
		}
	}
	changes := []SchemaChange{keyspace}
	table := SchemaChange{Object: "table " + a.opts.Keyspace + "." + tableName, Action: "exists"}
	switch {
	case len(before.columns) == 0:
		table.Action = "created"
		err = a.exec(statements[1])
	case before.columnsWrong() != nil:
		return changes, &SchemaError{Place: a.opts.place(), Missing: before.columnsWrong()}
	case before.ttl != ttl:
		table.Action = "altered"
		table.Detail = fmt.Sprintf("default_time_to_live %d to %d seconds, for rows written from now on", int64(before.ttl/time.Second), int64(ttl/time.Second))
		err = a.exec(fmt.Sprintf("ALTER TABLE %s.%s WITH default_time_to_live = %d", a.opts.Keyspace, tableName, int64(ttl/time.Second)))
	}
	if err != nil {
		return changes, err
	}
	return append(changes, table), nil
}

// exec runs one statement; gocql waits until the nodes agree on the schema.
func (a *applying) exec(statement string) error {
	return a.session.Query(statement).WithContext(a.ctx).Exec()
}

// CheckSchema compares the table with what this version writes, and its TTL
// with opts.TTL. What is missing is a *SchemaError. It makes one attempt to
// connect.
func CheckSchema(ctx context.Context, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	c, err := connect(ctx, opts, "")
	if err != nil {
		return err
	}
	defer c.close()
	found, err := readSchema(ctx, c.link.Session, opts.Keyspace)
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
	ttl         time.Duration
}

func (f *foundSchema) wrong(opts Options) []string {
	switch {
	case f.replication == "":
		return []string{"keyspace " + opts.Keyspace + " does not exist"}
	case len(f.columns) == 0:
		return []string{"table " + tableName + " does not exist"}
	}
	missing := f.columnsWrong()
	if f.ttl != 0 && f.ttl < opts.TTL {
		missing = append(missing, fmt.Sprintf("default_time_to_live is %d seconds, want at least %d", int64(f.ttl/time.Second), int64(opts.TTL/time.Second)))
	}
	return missing
}

// columnsWrong names each column that is missing or of another type or place.
// Columns that we do not know are none of our business.
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

func readSchema(ctx context.Context, s *gocql.Session, keyspace string) (*foundSchema, error) {
	f := &foundSchema{columns: make(map[string]string)}
	var replication map[string]string
	err := s.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name=?", keyspace).WithContext(ctx).Scan(&replication)
	if errors.Is(err, gocql.ErrNotFound) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	if f.replication, err = (SchemaOptions{Replication: replication}).replication(); err != nil {
		return nil, err
	}
	var ttl int
	err = s.Query("SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name=? AND table_name=?", keyspace, tableName).WithContext(ctx).Scan(&ttl)
	if errors.Is(err, gocql.ErrNotFound) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.ttl = time.Duration(ttl) * time.Second
	return f, f.readColumns(ctx, s, keyspace)
}

func (f *foundSchema) readColumns(ctx context.Context, s *gocql.Session, keyspace string) error {
	iter := s.Query("SELECT column_name,type,kind,position FROM system_schema.columns WHERE keyspace_name=? AND table_name=?", keyspace, tableName).WithContext(ctx).Iter()
	var (
		name, kind, typ string
		position        int
		clustering      = make(map[int]string)
		partition       = make(map[int]string)
	)
	for iter.Scan(&name, &typ, &kind, &position) {
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
	return iter.Close()
}
