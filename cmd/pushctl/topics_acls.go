package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/wiring"
)

// aclFlags are the command line of topics acls.
type aclFlags struct {
	worker, registry, operator  string
	gateways, fanouts, webhooks []string
	producers, readers          []string
	dashboards, redrivers       []string
	tool                        string
}

func newTopicsACLsCommand(a *app) *cobra.Command {
	var f aclFlags
	cmd := &cobra.Command{
		Use:   "acls",
		Short: "Print the commands that give each principal the rights it needs in Kafka",
		Long: `Print the kafka-acls.sh commands that give each principal exactly the rights it needs for the configured
lanes and groups. Review them, then pipe them into a shell. Nothing is sent to Kafka. docs/operations.md,
"Who may do what", has the same rights as a table.

--gateway, --fanout, --webhooks, --producer, --reader, --dashboard and --redriver may be repeated; without them,
their rights are not printed. --gateway is pushgateway serve, --fanout pushgateway fanout, which has rights only with
gateway.fanout.enabled, and --webhooks pushgateway webhooks, with gateway.webhooks.senders. --dashboard
is pushgateway dashboard; the same principal as --redriver, too, lets those with an admin key redrive and dismiss dead
letters there. --reader is whatever else reads push.events; with a consumer group it also needs Read on that group.`,
		Example: "  pushctl topics acls --producer User:shop --producer User:auth\n  pushctl topics acls --gateway User:pushgateway --fanout User:pushfanout\n" +
			"  pushctl topics acls --registry User:CN=registry --reader User:grafana\n  pushctl topics acls --dashboard User:pushdashboard --redriver User:pushdashboard",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.printACLs(&f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.worker, "worker", "User:pushworker", "`principal` of the workers")
	flags.StringVar(&f.registry, "registry", "User:pushregistry", "`principal` of the registry")
	flags.StringVar(&f.operator, "operator", "User:pushctl", "`principal` of pushctl")
	flags.StringArrayVar(&f.gateways, "gateway", nil, "`principal` of the gateways")
	flags.StringArrayVar(&f.fanouts, "fanout", nil, "`principal` of the processes of fan-outs")
	flags.StringArrayVar(&f.webhooks, "webhooks", nil, "`principal` of the processes of webhooks")
	flags.StringArrayVar(&f.producers, "producer", nil, "`principal` of a producer of notifications")
	flags.StringArrayVar(&f.readers, "reader", nil, "`principal` of a reader of push.events")
	flags.StringArrayVar(&f.dashboards, "dashboard", nil, "`principal` of a dashboard of a team")
	flags.StringArrayVar(&f.redrivers, "redriver", nil, "`principal` of such a dashboard on which dead letters are acted on: rights besides those of --dashboard")
	flags.StringVar(&f.tool, "tool", "", "the `command` to print; default: kafka-acls.sh with the first of kafka.brokers and admin.properties")
	return cmd
}

// aclRow is a right of one principal in the JSON answer.
type aclRow struct {
	Principal  string   `json:"principal"`
	Role       string   `json:"role"`
	Resource   string   `json:"resource"` // topic or group
	Name       string   `json:"name"`
	Operations []string `json:"operations"`
}

func (a *app) printACLs(f *aclFlags) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	principals := map[wiring.Role][]string{
		wiring.Worker: {f.worker}, wiring.Registry: {f.registry}, wiring.Operator: {f.operator},
		wiring.HTTPGateway: f.gateways, wiring.FanoutWorker: f.fanouts, wiring.Webhooks: f.webhooks, wiring.Producer: f.producers,
		wiring.Reader: f.readers, wiring.Dashboard: f.dashboards, wiring.Redriver: f.redrivers,
	}
	if len(f.fanouts) > 0 && !c.Gateway.Fanout.Enabled {
		return usagef("--fanout: there are no fan-outs without gateway.fanout.enabled")
	}
	if len(f.webhooks) > 0 && len(c.Gateway.Webhooks.Senders) == 0 {
		return usagef("--webhooks: nobody is told anything without gateway.webhooks.senders")
	}
	for role, names := range principals {
		for _, name := range names {
			if kind, rest, _ := strings.Cut(name, ":"); kind == "" || rest == "" {
				return usagef("--%s: %q is not a principal such as User:shop", role, name)
			}
		}
	}
	rows := []aclRow{}
	for _, role := range wiring.Roles() {
		for _, principal := range principals[role] {
			for _, r := range wiring.Rights(c) {
				if r.Role == role {
					rows = append(rows, aclRow{principal, string(role), r.Resource, r.Name, r.Operations})
				}
			}
		}
	}
	tool := f.tool
	if tool == "" {
		tool = "kafka-acls.sh --bootstrap-server " + quoted(c.Kafka.Brokers[0]) + " --command-config admin.properties"
	}
	return a.show(terminal.Answer{Value: rows, Before: strings.Join(aclCommands(tool, rows), "\n")})
}

// aclCommands are the rights as command lines: one for all topics or groups on
// which a principal has the same operations.
func aclCommands(tool string, rows []aclRow) (commands []string) {
	var heads []string
	names := map[string]string{}
	for _, r := range rows {
		head := "--allow-principal " + quoted(r.Principal)
		for _, o := range r.Operations {
			head += " --operation " + o
		}
		key := head + " --" + r.Resource
		if !slices.Contains(heads, key) {
			heads = append(heads, key)
		}
		names[key] += fmt.Sprintf(" --%s %s", r.Resource, quoted(r.Name))
	}
	for _, key := range heads {
		commands = append(commands, tool+" --add "+key[:strings.LastIndex(key, " --")]+names[key])
	}
	return commands
}

// quoted is a word in the syntax of a shell, quoted only if necessary.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/=,@", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
