package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

func newSchemaCommand(a *app) *cobra.Command {
	return newGroup("schema", "The status store's keyspace and table", newSchemaApplyCommand(a), newSchemaPrintCommand(a))
}

func newSchemaApplyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "apply",
		Short: "Create the keyspace and the tables, unless they exist",
		Long: "Create the keyspace and the tables with the configured replication and TTL, unless they exist. If the\n" +
			"status table exists with another TTL, change it; add the columns that tables of earlier releases lack. The command can be repeated at any time. The replication of an\n" +
			"existing keyspace is never changed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.applySchema(cmd.Context()) },
	}
}

func (a *app) applySchema(ctx context.Context) error {
	opts, err := a.cassandraOptions()
	if err != nil {
		return err
	}
	schema, err := a.schemaOptions()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*a.connectTime) // the nodes must agree on the schema
	defer cancel()
	changes, err := status.ApplySchema(ctx, opts, schema)
	if err != nil {
		return err
	}
	ofGateway, err := status.ApplyGatewaySchema(ctx, opts, schema)
	if err != nil {
		return err
	}
	changes = append(changes, ofGateway...)
	t := terminal.Table{Columns: []string{"object", "action", "detail"}}
	for _, c := range changes {
		t.Add(c.Object, c.Action, c.Detail)
	}
	return a.show(terminal.Answer{Value: changes, Table: t})
}

func newSchemaPrintCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "print",
		Short: "Print the statements of apply, for cqlsh",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.printSchema() },
	}
}

func (a *app) printSchema() error {
	c, err := a.config()
	if err != nil {
		return err
	}
	schema, err := a.schemaOptions()
	if err != nil {
		return err
	}
	text, err := status.SchemaText(c.Cassandra.Keyspace, schema)
	if err != nil {
		return usageError{err}
	}
	if a.format == terminal.FormatJSON {
		return terminal.WriteJSON(a.stdout, map[string]string{"cql": text}, indent)
	}
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return fmt.Errorf("writing the schema: %w", err)
	}
	return nil
}

func (a *app) schemaOptions() (status.SchemaOptions, error) {
	c, err := a.config()
	if err != nil {
		return status.SchemaOptions{}, err
	}
	return wiring.Schema(c), nil
}
