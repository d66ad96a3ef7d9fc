package status

import (
	"context"
	"fmt"
	"strings"
)

// gatewayTables are the tables of the schema that no worker uses, in the order of their
// statements, which are the last.
var gatewayTables = []string{"topics", "topics_by_app", "subscriptions", "subscriptions_by_user", "fanout_jobs", "fanout_chunks", "fanout_orders", "fanout_messages", "topic_messages", "clicks", "app_users"}

// ApplyGatewaySchema creates the tables of gateways unless they exist, adds the columns that
// those of earlier releases lack, and reports what it did. The keyspace must be there: ApplySchema. It may be run again at any time, and makes
// one attempt to connect. No worker needs these tables.
func ApplyGatewaySchema(ctx context.Context, opts Options, schema SchemaOptions) ([]SchemaChange, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	statements, err := schemaStatements(opts.Keyspace, schema)
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
	changes, err := apply.gateway(statements[len(statements)-len(gatewayTables):])
	if err != nil {
		return changes, fmt.Errorf("applying the gateway's schema to %s: %w", opts.place(), err)
	}
	return changes, nil
}

// gateway creates the tables by their statements, and adds what earlier ones lack.
func (a *applying) gateway(statements []string) (changes []SchemaChange, err error) {
	for i, name := range gatewayTables {
		change, err := a.ensure(name, statements[i])
		if err == nil && change.Action == "exists" {
			err = a.extend(&change, name)
		}
		if err != nil {
			return changes, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// gatewayColumns are columns that tables of earlier releases lack, with their types, by table.
var gatewayColumns = map[string][]struct{ name, kind string }{
	"topics": {{"publishers", "frozen<set<text>>"}},
}

// extend adds to a table that is there what a release before this one did not know.
func (a *applying) extend(table *SchemaChange, name string) error {
	var added []string
	for _, column := range gatewayColumns[name] {
		var kind string
		found, err := one(a.ask(a.ctx, "SELECT type FROM system_schema.columns WHERE keyspace_name=? AND table_name=? AND column_name=?", a.opts.Keyspace, name, column.name), &kind)
		if err != nil {
			return err
		}
		if found {
			continue
		}
		if err := a.exec("ALTER TABLE " + a.opts.Keyspace + "." + name + " ADD " + column.name + " " + column.kind); err != nil {
			return err
		}
		added = append(added, "column "+column.name+" added")
		table.Action, table.Detail = "altered", strings.Join(added, "; ")
	}
	return nil
}
