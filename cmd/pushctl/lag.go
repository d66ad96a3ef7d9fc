package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
)

func newLagCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "lag",
		Short: "How far workers are behind, per lane, topic and partition",
		Long: `Show for each lane's topic and its retry, deferral and hold topics the offset that the group has
committed, the end of the log, and the number of records between. All but the lane's own always lag by
the records that are not due yet.
"-" (null in JSON) means that the group has committed nothing there, as before its first start. It will
begin with the first record, so all records there count as lag.

Of a lane that sheds (lanes[].shed), the depth that its thresholds are about is shown below: what waits in
its own topic, in the partition that has the most, times the partitions. It is an upper estimate: the lag
includes what workers are sending; push_lane_depth is what they go by.`,
		Example: "  pushctl lag\n  pushctl lag -o json | jq 'map(.lag // 0) | add'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.showLag(cmd.Context()) },
	}
}

// lagRow is a partition in the JSON answer.
type lagRow struct {
	Lane      string `json:"lane"`
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`
	End       int64  `json:"end"`
	Lag       *int64 `json:"lag"`
	// Of the own topic of a lane that sheds: the lag times the partitions, and the
	// thresholds by priority.
	DepthAtMost *int64           `json:"depth_at_most,omitempty"`
	Thresholds  map[string]int64 `json:"thresholds,omitempty"`
}

func (a *app) showLag(ctx context.Context) error {
	c, err := a.config()
	if err != nil {
		return err
	}
	var topics []string
	for _, l := range c.Lanes {
		topics = append(topics, l.Topic)
		for _, t := range wiring.RetryTopics(c, l) {
			topics = append(topics, t.Name)
		}
	}
	admin, err := a.reachKafka(ctx, topics...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.connectTime)
	defer cancel()
	rows := []lagRow{}
	for _, l := range c.Lanes {
		of := []lagRow{{Lane: l.Name, Group: c.Kafka.LaneGroup(l.Name), Topic: l.Topic, Thresholds: thresholdsOf(l.Shed)}}
		for _, t := range wiring.RetryTopics(c, l) {
			of = append(of, lagRow{Lane: l.Name, Group: c.Kafka.RetryGroup(l.Name), Topic: t.Name})
		}
		for _, of := range of {
			if rows, err = appendLag(ctx, admin, rows, of); err != nil {
				return err
			}
		}
	}
	return a.show(explainLag(rows))
}

// appendLag adds a row for each partition of the topic of.Topic. It reads the
// committed and first offsets before the ends, so that a lag is never negative.
func appendLag(ctx context.Context, admin *kafka.Admin, rows []lagRow, of lagRow) ([]lagRow, error) {
	lags, err := admin.Lag(ctx, of.Group)
	if err != nil {
		return rows, err
	}
	committed := make(map[int32]int64)
	for _, l := range lags {
		if l.Topic == of.Topic && l.Committed >= 0 {
			committed[l.Partition] = l.Committed
		}
	}
	starts, err := admin.StartOffsets(ctx, of.Topic)
	if err != nil {
		return rows, err
	}
	ends, err := admin.EndOffsets(ctx, of.Topic)
	if err != nil {
		return rows, err
	}
	first := len(rows)
	for p, end := range ends {
		row := of
		row.Partition, row.End = p, end
		if at, ok := committed[p]; ok {
			lag := max(0, end-at)
			row.Committed, row.Lag = &at, &lag
		} else if waiting := end - starts[p]; waiting > 0 {
			row.Lag = &waiting // kafka.first_start is earliest
		}
		if row.Thresholds != nil {
			depth := int64(len(ends))
			if row.Lag != nil {
				depth *= *row.Lag
			} else {
				depth = 0
			}
			row.DepthAtMost = &depth
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows[first:], func(x, y lagRow) int { return int(x.Partition - y.Partition) })
	return rows, nil
}

func explainLag(rows []lagRow) terminal.Answer {
	t := terminal.Table{Columns: []string{"lane", "topic", "partition", "committed", "end", "lag"}}
	total := int64(0)
	for _, r := range rows {
		committed, lag := "", ""
		if r.Committed != nil {
			committed = strconv.FormatInt(*r.Committed, 10)
		}
		if r.Lag != nil {
			lag = strconv.FormatInt(*r.Lag, 10)
			total += *r.Lag
		}
		t.Add(r.Lane, r.Topic, strconv.Itoa(int(r.Partition)), committed, strconv.FormatInt(r.End, 10), lag)
	}
	return terminal.Answer{Value: rows, Table: t, After: "lag: " + strconv.FormatInt(total, 10) + " records" + explainDepths(rows)}
}

// thresholdsOf are the thresholds of a lane that sheds; nil = it does not.
func thresholdsOf(s configs.Shed) map[string]int64 {
	if !s.Enabled {
		return nil
	}
	return map[string]int64{push.High.String(): int64(s.High), push.Medium.String(): int64(s.Medium), push.Low.String(): int64(s.Low), push.Bulk.String(): int64(s.Bulk)}
}

// explainDepths has a line for each lane that sheds: its greatest depth against its
// thresholds.
func explainDepths(rows []lagRow) (lines string) {
	var lanes []string
	most := make(map[string]lagRow)
	for _, r := range rows {
		if r.DepthAtMost == nil {
			continue
		}
		before, known := most[r.Lane]
		if !known {
			lanes = append(lanes, r.Lane)
		}
		if !known || *r.DepthAtMost > *before.DepthAtMost {
			most[r.Lane] = r
		}
	}
	for _, lane := range lanes {
		r := most[lane]
		lines += fmt.Sprintf("\ndepth of %s: at most %d, by partition %d; above its threshold a priority is shed:", lane, *r.DepthAtMost, r.Partition)
		for p := push.High; p >= push.Bulk; p-- {
			threshold := r.Thresholds[p.String()]
			lines += fmt.Sprintf(" %s %d", p, threshold)
			if *r.DepthAtMost > threshold {
				lines += " (may be shed)"
			}
		}
	}
	return lines
}
