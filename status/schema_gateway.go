package status

import (
	"context"
	"fmt"
)

// gatewayTables are the tables of the schema that no worker uses, in the order of their
// statements, which are the last.
var gatewayTables = []string{"topics", "topics_by_app", "subscriptions", "subscriptions_by_user", "fanout_jobs", "fanout_chunks", "fanout_orders", "fanout_messages", "topic_messages", "clicks", "app_users"}

// ApplyGatewaySchema creates the tables of gateways unless they exist, and reports what it
// did. The keyspace must be there: ApplySchema. It may be run again at any time, and makes
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
	var changes []SchemaChange
	for i, name := range gatewayTables {
		change, err := apply.ensure(name, statements[len(statements)-len(gatewayTables)+i])
		if err != nil {
			return changes, fmt.Errorf("applying the gateway's schema to %s: %w", opts.place(), err)
		}
		changes = append(changes, change)
	}
	return changes, nil
}
