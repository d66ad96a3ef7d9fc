package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/sizing"
)

// planExamples are those of the help and of docs/plan.md, which has what each prints.
const planExamples = `  # 3.5 million a second, for an hour of the day, on 18 workers and 18 partitions
  pushctl plan --rate 3.5M --per-day 12.6G --workers 18 --partitions 18 --lost-workers 0 --open 50000

  # 8 billion a day for 400 million users, half of them on Android, and a zone may be lost
  pushctl plan --rate 1M --per-day 8G --users 400M --fcm 50% --fcm-quota 30M --lost-zones 1

  # 200 million users with 5 a day, at a peak of 4 times the average
  pushctl plan --users 200M --per-user-day 5

  # 270 million users in 4 segments, one a day each, limits by the week
  pushctl plan --users 270M --per-user-day 1 --segments 4 --limit-window 168h

  # what was measured on your machines, and where the defaults come from
  pushctl plan --rate 50k --worker-cpu 14.6us --apns-latency 80ms
  pushctl plan --sources`

func newPlanCommand(a *app) *cobra.Command {
	in, sources := sizing.Default(), false
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "What a load needs: workers, partitions, connections, Redis, Cassandra, Kafka",
		Long: `Work out what a load needs, and show the arithmetic line by line. It is about one lane, and asks no server.

Say what is asked: --rate, or --per-day, or --users with --per-user-day. Costs were measured on small
machines (--sources says where), and every one is a flag: put what you have measured.
Say also what there is (--workers, --partitions, --open, --fcm-quota ...): what is missing is said
with the number that would suffice, and the exit status is 1.

Numbers may end in k, M, G or T, shares in %, times in us, ms, s, m, h or d, sizes in kB, GB or GiB.`,
		Example: planExamples,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if sources {
				return a.show(explainParameters(sizing.Parameters()))
			}
			return a.showPlan(in)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	for _, p := range sizing.Parameters() {
		flags.Var(&planFlag{p.Kind, p.Field(&in)}, p.Name, p.Text)
	}
	flags.BoolVar(&sources, "sources", false, "print all numbers with their defaults, ranges and where these come from, and plan nothing")
	return cmd
}

// planFlag is a number of the input as a flag.
type planFlag struct {
	kind  sizing.Kind
	value *float64
}

// Set implements pflag.Value.
func (f *planFlag) Set(s string) (err error) {
	*f.value, err = f.kind.Parse(s)
	return err
}

// String implements pflag.Value.
func (f *planFlag) String() string { return f.kind.Text(*f.value) }

// Type implements pflag.Value: it is what stands behind the flag in the help.
func (f *planFlag) Type() string {
	switch f.kind {
	case sizing.Share:
		return "share"
	case sizing.Duration:
		return "time"
	case sizing.Bytes:
		return "size"
	}
	return "number"
}

func (a *app) showPlan(in sizing.Input) error {
	p, err := sizing.Of(in)
	if wrong, is := errors.AsType[*sizing.InputError](err); is {
		return usagef("--%s: %s", wrong.Name, wrong.Why)
	}
	if err != nil {
		return err
	}
	if err := a.show(explainPlan(p)); err != nil {
		return err
	}
	if len(p.Short) > 0 {
		return errDifference
	}
	return nil
}

func explainPlan(p *sizing.Plan) terminal.Answer {
	t := terminal.Table{Columns: []string{"part", "what", "is", "because"}}
	part := ""
	for _, l := range p.Lines {
		first := l.Part
		if first == part {
			first = " " // named by the line that it begins with
		}
		part = l.Part
		t.Add(first, l.What, l.Is, l.How)
	}
	return terminal.Answer{Value: p, Table: t, After: verdict(p)}
}

// verdict says below the arithmetic what it comes to.
func verdict(p *sizing.Plan) string {
	var b strings.Builder
	b.WriteString(p.Verdict())
	for _, s := range p.Short {
		fmt.Fprintf(&b, "\nSHORT: --%s: %s", s, s.Why)
	}
	return b.String()
}

// parameterRow is a number of the input in the JSON answer of --sources. Times are in
// seconds, sizes in bytes.
type parameterRow struct {
	Name    string  `json:"name"`
	Default float64 `json:"default"`
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	Text    string  `json:"text"`
	Source  string  `json:"source"`
}

func explainParameters(all []sizing.Parameter) terminal.Answer {
	t := terminal.Table{Columns: []string{"flag", "default", "least", "most", "source of the default"}}
	rows := make([]parameterRow, len(all))
	for i, p := range all {
		rows[i] = parameterRow{p.Name, p.Default, p.Least, p.Most, p.Text, p.Source}
		t.Add("--"+p.Name, p.Kind.Text(p.Default), p.Kind.Text(p.Least), p.Kind.Text(p.Most), p.Source)
	}
	return terminal.Answer{Value: rows, Table: t}
}
