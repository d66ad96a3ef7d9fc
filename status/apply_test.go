package status

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

// catalogue is a server's system_schema, as far as it is queried, and records
// the changes.
type catalogue struct {
	replication map[string]string // nil = no keyspace
	ttl         int               // seconds
	columns     [][4]any          // of the status table: name, type, kind, position; none = no table
	details     []string          // fields of the type of the column details: name and type; nil = no type
	noOthers    bool              // there is none of otherTables, nor of the gateway's
	later       bool              // the gateway's have the columns that earlier releases lack
	fails       string            // a statement that contains this fails
	told        []string          // all statements but queries
}

var errAway = errors.New("no hosts available")

// rowsFound is an answer made up by the test.
type rowsFound struct {
	rows [][]any
	err  error
}

func (f *rowsFound) Scan(dest ...any) bool {
	if len(f.rows) == 0 {
		return false
	}
	for i, value := range f.rows[0] {
		switch to := dest[i].(type) {
		case *string:
			*to = value.(string)
		case *int:
			*to = value.(int)
		case *[]string:
			*to = value.([]string)
		case *map[string]string:
			*to = value.(map[string]string)
		}
	}
	f.rows = f.rows[1:]
	return true
}

func (f *rowsFound) Close() error { return f.err }

func (c *catalogue) ask(_ context.Context, cql string, args ...any) answer {
	var f rowsFound
	switch {
	case c.fails != "" && strings.Contains(cql, c.fails):
		f.err = errAway
	case strings.Contains(cql, ".types"):
		if c.details != nil {
			f.rows = [][]any{c.fields()}
		}
	case strings.Contains(cql, ".keyspaces") && c.replication != nil:
		f.rows = [][]any{{c.replication}}
	case strings.Contains(cql, ".tables") && args[1] != tableName:
		if !c.noOthers {
			f.rows = [][]any{{0}}
		}
	case strings.Contains(cql, ".tables") && len(c.columns) > 0:
		f.rows = [][]any{{c.ttl}}
	case strings.Contains(cql, ".columns") && len(args) == 3:
		if c.later {
			f.rows = [][]any{{"frozen<set<text>>"}}
		}
	case strings.Contains(cql, ".columns"):
		for _, column := range c.columns {
			f.rows = append(f.rows, column[:])
		}
	}
	if !strings.HasPrefix(cql, "SELECT") {
		c.told = append(c.told, cql)
	} else if len(args) == 0 || args[0] != "k" {
		f.err = errors.New("asked for another keyspace")
	}
	return &f
}

// asMade is a table as ApplySchema creates it, with columns in the server's
// order.
func asMade() *catalogue {
	c := &catalogue{replication: map[string]string{"class": "SimpleStrategy", "replication_factor": "1"}, ttl: 3600, details: detailsFields}
	for name, of := range columnTypes {
		column := [4]any{name, of, "regular", -1}
		if at := slices.Index(keyColumns, name); at == 0 {
			column[2], column[3] = "partition_key", 0
		} else if at > 0 {
			column[2], column[3] = "clustering", at-1
		}
		c.columns = append(c.columns, column)
	}
	return c
}

// fields are the names and the types of the type's fields.
func (c *catalogue) fields() []any {
	var names, types []string
	for _, field := range c.details {
		name, of, _ := strings.Cut(field, " ")
		names, types = append(names, name), append(types, of)
	}
	return []any{names, types}
}

// What exists decides what is done. A query or change that fails ends it:
// nothing is created as long as it is unknown what exists.
func TestApplyDoesWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		why     string
		server  *catalogue
		actions string // of keyspace, type and tables, as far as it got
		told    string // the first word of each change
		wrong   string // in the error
	}{
		{"nothing is there", &catalogue{noOthers: true}, "created created created created created created created created created", "CREATE CREATE CREATE CREATE CREATE CREATE CREATE CREATE CREATE", ""},
		{"a keyspace is there", &catalogue{replication: asMade().replication}, "exists created created exists exists exists exists exists exists", "CREATE CREATE", ""},
		{"all is there", asMade(), "exists exists exists exists exists exists exists exists exists", "", ""},
		{"only the status table is there, from an earlier version", with(func(c *catalogue) { c.noOthers = true }), "exists exists exists created created created created created created", "CREATE CREATE CREATE CREATE CREATE CREATE", ""},
		{"another table cannot be made", with(func(c *catalogue) { c.noOthers, c.fails = true, "k.device_limit_times" }), "exists exists exists created", "CREATE CREATE", "no hosts"},
		{"rows live for another time", with(func(c *catalogue) { c.ttl = 7200 }), "exists exists altered exists exists exists exists exists exists", "ALTER", ""},
		{"a table of the version before", with(func(c *catalogue) { c.without("details"); c.details = nil }), "exists created altered exists exists exists exists exists exists", "CREATE ALTER", ""},
		{"a type that was made, and no column", with(func(c *catalogue) { c.without("details") }), "exists exists altered exists exists exists exists exists exists", "ALTER", ""},
		{"a type with fields of later releases", with(func(c *catalogue) { c.details = append(slices.Clone(detailsFields), "cost int") }), "exists exists exists exists exists exists exists exists exists", "", ""},
		{"another type of that name", with(func(c *catalogue) { c.details = []string{"at timestamp", "provider text"} }), "exists", "", "type notification_details is (at timestamp, provider text), want"},
		{"another type of that name, and no table", &catalogue{replication: asMade().replication, details: []string{"street text"}}, "exists", "", "type notification_details is (street text), want"},
		{"another table without the type", with(func(c *catalogue) { c.details = nil; c.without("details"); c.without("reason") }), "exists", "", "column reason text does not exist"},
		{"a type that cannot be made", with(func(c *catalogue) { c.details, c.fails = nil, "CREATE TYPE" }), "exists", "CREATE", "no hosts"},
		{"no answer about the type", with(func(c *catalogue) { c.fails = ".types" }), "", "", "no hosts"},
		{"a table of an earlier version", with(func(c *catalogue) { c.without("place") }), "exists exists altered exists exists exists exists exists exists", "ALTER", ""},
		{"an earlier version and another time", with(func(c *catalogue) { c.without("place"); c.ttl = 7200 }), "exists exists altered exists exists exists exists exists exists", "ALTER ALTER", ""},
		{"a column that no version did without", with(func(c *catalogue) { c.without("reason") }), "exists", "", "column reason text does not exist"},
		{"another table", with(func(c *catalogue) { c.columns[0][1] = "blob" }), "exists", "", "is blob, want"},
		{"a replication that is none", with(func(c *catalogue) { c.replication = map[string]string{} }), "", "", "no class"},
		{"no answer about the keyspace", with(func(c *catalogue) { c.fails = ".keyspaces" }), "", "", "no hosts"},
		{"no answer about the table", with(func(c *catalogue) { c.fails = ".tables" }), "", "", "no hosts"},
		{"no answer about its columns", with(func(c *catalogue) { c.fails = ".columns" }), "", "", "no hosts"},
		{"the keyspace cannot be made", &catalogue{fails: "KEYSPACE"}, "", "CREATE", "no hosts"},
		{"the table cannot be made", &catalogue{fails: "TABLE"}, "created created", "CREATE CREATE CREATE", "no hosts"},
		{"the table cannot be changed", with(func(c *catalogue) { c.ttl, c.fails = 7200, "ALTER" }), "exists exists", "ALTER", "no hosts"},
	} {
		statements, err := schemaStatements("k", SchemaOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		a := applying{ctx: t.Context(), ask: tt.server.ask, opts: Options{Keyspace: "k", Hosts: []string{"h"}, Log: slog.New(slog.DiscardHandler)}}
		changes, err := a.run(statements, time.Hour)
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.wrong)
		}
		var actions, told []string
		for _, c := range changes {
			actions = append(actions, c.Action)
		}
		for _, statement := range tt.server.told {
			if strings.HasPrefix(statement, "ALTER") {
				told = append(told, "ALTER")
			} else {
				told = append(told, "CREATE")
			}
		}
		if strings.Join(actions, " ") != tt.actions || strings.Join(told, " ") != tt.told {
			t.Errorf("%s: did %q by %q, want %q by %q", tt.why, actions, told, tt.actions, tt.told)
		}
	}
}

// with is asMade with a change.
func with(change func(*catalogue)) *catalogue {
	c := asMade()
	change(c)
	return c
}

// without takes a column away.
func (c *catalogue) without(name string) {
	c.columns = slices.DeleteFunc(c.columns, func(column [4]any) bool { return column[0] == name })
}

// Each change is reported with its object and its values.
func TestApplySaysWhatItHasDone(t *testing.T) {
	server := with(func(c *catalogue) { c.ttl = 7200 })
	a := applying{ctx: t.Context(), ask: server.ask, opts: Options{Keyspace: "k"}}
	changes, err := a.run([]string{"CREATE 1", "CREATE 2", "CREATE 3", "CREATE 4", "CREATE 5", "CREATE 6", "CREATE 7", "CREATE 8", "CREATE 9"}, time.Hour)
	want := []SchemaChange{
		{"keyspace k", "exists", "{'class': 'SimpleStrategy', 'replication_factor': '1'}"},
		{"type k.notification_details", "exists", ""},
		{"table k.notification_status", "altered", "default_time_to_live 7200 to 3600 seconds, for rows written from now on"},
		{"table k.device_limit_days", "exists", ""},
		{"table k.device_limit_times", "exists", ""},
		{"table k.inbox", "exists", ""},
		{"table k.inbox_read", "exists", ""},
		{"table k.inbox_news", "exists", ""},
		{"table k.user_messages", "exists", ""},
	}
	if err != nil || !slices.Equal(changes, want) {
		t.Errorf("%+v, %v", changes, err)
	}
	if len(server.told) != 1 || server.told[0] != "ALTER TABLE k.notification_status WITH default_time_to_live = 3600" {
		t.Errorf("told %q", server.told)
	}
}

// Tables of gateways are made, or get the columns that they lack, once.
func TestApplyExtendsTablesOfGateways(t *testing.T) {
	statements := make([]string, len(gatewayTables))
	for i, name := range gatewayTables {
		statements[i] = "CREATE TABLE k." + name
	}
	const column = "ALTER TABLE k.topics ADD publishers frozen<set<text>>"
	for _, tt := range []struct {
		why    string
		server catalogue
		topics SchemaChange
		told   []string
		fails  bool
	}{
		{"nothing is there", catalogue{noOthers: true}, SchemaChange{"table k.topics", "created", ""}, statements, false},
		{"of an earlier release", catalogue{}, SchemaChange{"table k.topics", "altered", "column publishers added"}, []string{column}, false},
		{"of this release", catalogue{later: true}, SchemaChange{"table k.topics", "exists", ""}, nil, false},
		{"no answer about the column", catalogue{fails: ".columns"}, SchemaChange{}, nil, true},
		{"it cannot be added", catalogue{fails: "ALTER"}, SchemaChange{}, []string{column}, true},
	} {
		server := tt.server
		a := applying{ctx: t.Context(), ask: server.ask, opts: Options{Keyspace: "k"}}
		changes, err := a.gateway(statements)
		if (err != nil) != tt.fails || !slices.Equal(server.told, tt.told) {
			t.Errorf("%s: told %q, %v", tt.why, server.told, err)
		}
		if !tt.fails && (len(changes) != len(gatewayTables) || changes[0] != tt.topics) {
			t.Errorf("%s: %+v", tt.why, changes)
		}
	}
}
