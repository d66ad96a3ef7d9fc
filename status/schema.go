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

	"github.com/pushfleet/pushfleet/deploy/cassandra"
)

// tableName is the status table's name in its keyspace.
const tableName = "notification_status"

// columnTypes are the table's columns as system_schema spells their types.
// encode.go encodes for exactly these.
var columnTypes = map[string]string{
	"bucket": "bigint", "id": "text", "device": "text", "step": "smallint", "state": "tinyint",
	"at": "timestamp", "provider": "tinyint", "provider_id": "text", "reason": "text", "user_hash": "bigint",
	"place": "bigint", "details": "frozen<" + detailsType + ">",
}

// detailsType is the type of the column details, and detailsFields its fields
// in their order, as details.go reads and writes them.
const detailsType = "notification_details"

var detailsFields = []string{"at timestamp", "provider tinyint", "provider_id text", "reason text", "user_hash bigint", "place bigint"}

// otherTables are the tables of the schema that Session is for, in the order of
// their statements, which follow that of the status table.
var otherTables = []string{"device_limit_days", "device_limit_times", "inbox", "inbox_read", "inbox_news", "user_messages"}

// addedColumns are those that tables of earlier versions do not have.
var addedColumns = []string{"place", "details"}

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
	return strings.Join(statements, ";\n\n") + ";\n", nil
}

// The parts of schema.cql that depend on the installation.
const (
	fileKeyspace    = "EXISTS pushfleet"
	fileReplication = "{'class': 'SimpleStrategy', 'replication_factor': '1'}"
	fileWindow      = "'compaction_window_size': '24'"
	fileTTL         = "default_time_to_live = 2592000"
)

func schemaStatements(keyspace string, opts SchemaOptions) ([]string, error) {
	if !keyspaceName.MatchString(keyspace) {
		return nil, fmt.Errorf("keyspace %q, want lower-case letters, digits and _, at most 48", keyspace)
	}
	ttl, err := opts.ttl()
	if err != nil {
		return nil, err
	}
	replication, err := opts.replication()
	if err != nil {
		return nil, err
	}
	text := strings.NewReplacer(
		fileKeyspace, "EXISTS "+keyspace,
		fileReplication, replication,
		fileWindow, fmt.Sprintf("'compaction_window_size': '%d'", windowHours(ttl)),
		fileTTL, fmt.Sprintf("default_time_to_live = %d", int64(ttl/time.Second)),
	).Replace(cassandra.Schema())
	return splitStatements(text), nil
}

// splitStatements returns the statements of a CQL text, each with the comments
// before it. A semicolon ends one unless it is in a comment.
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
			return "", fmt.Errorf("replication option %q has a character that CQL does not allow", k)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "'%s': '%s'", k, o.Replication[k])
	}
	return "{" + b.String() + "}", nil
}

// ApplySchema creates the keyspace and the tables unless they exist, adds the columns
// that a status table of an earlier version lacks, corrects its TTL, and reports what it did. It may be run again at any time. It
// never changes the replication of a keyspace that exists (that needs a repair)
// and refuses a status table with other columns with a *SchemaError. It makes one
// attempt to connect.
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
	apply := applying{ctx: ctx, ask: askingOf(c.link.Session), opts: opts}
	changes, err := apply.run(statements, ttl)
	if err != nil {
		return changes, fmt.Errorf("applying schema to %s: %w", opts.place(), err)
	}
	return changes, nil
}

// schemaTimeout is the least time-out of a schema change, which takes seconds
// where an insert takes milliseconds.
const schemaTimeout = 30 * time.Second

// applying is an ApplySchema in progress.
type applying struct {
	ctx  context.Context
	ask  asking
	opts Options
}

func (a *applying) run(statements []string, ttl time.Duration) ([]SchemaChange, error) {
	before, err := readSchema(a.ctx, a.ask, a.opts.Keyspace)
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
	if wrong := before.unusable(); wrong != nil {
		return changes, &SchemaError{Place: a.opts.place(), Missing: wrong}
	}
	kind := SchemaChange{Object: "type " + a.opts.Keyspace + "." + detailsType, Action: "exists"}
	if before.details == nil {
		kind.Action = "created"
		if err := a.exec(statements[1]); err != nil {
			return changes, err
		}
	}
	changes = append(changes, kind)
	table := SchemaChange{Object: "table " + a.opts.Keyspace + "." + tableName, Action: "created"}
	if len(before.columns) == 0 {
		err = a.exec(statements[2])
	} else {
		err = a.alter(&table, before, ttl)
	}
	if err != nil {
		return changes, err
	}
	changes = append(changes, table)
	for i, name := range otherTables {
		change, err := a.ensure(name, statements[3+i])
		if err != nil {
			return changes, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// alter makes the status table that there is what this version writes.
func (a *applying) alter(table *SchemaChange, before *foundSchema, ttl time.Duration) error {
	table.Action = "exists"
	var done []string
	change := func(what, statement string) error {
		table.Action, done = "altered", append(done, what)
		table.Detail = strings.Join(done, "; ")
		return a.exec("ALTER TABLE " + a.opts.Keyspace + "." + tableName + " " + statement)
	}
	for _, name := range before.lacks() {
		if err := change("column "+name+" added", "ADD "+name+" "+columnTypes[name]); err != nil {
			return err
		}
	}
	if before.ttl == ttl {
		return nil
	}
	return change(fmt.Sprintf("default_time_to_live %d to %d seconds, for rows written from now on", int64(before.ttl/time.Second), int64(ttl/time.Second)),
		fmt.Sprintf("WITH default_time_to_live = %d", int64(ttl/time.Second)))
}

// ensure creates a table unless there is one of its name.
func (a *applying) ensure(name, statement string) (SchemaChange, error) {
	change := SchemaChange{Object: "table " + a.opts.Keyspace + "." + name, Action: "exists"}
	var ttl int
	found, err := one(a.ask(a.ctx, "SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name=? AND table_name=?", a.opts.Keyspace, name), &ttl)
	if err != nil || found {
		return change, err
	}
	change.Action = "created"
	return change, a.exec(statement)
}

// exec runs one statement; gocql waits until the nodes agree on the schema.
func (a *applying) exec(statement string) error {
	return a.ask(a.ctx, statement).Close()
}
