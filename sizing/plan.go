package sizing

import (
	"fmt"
	"slices"
)

// Plan is what a load needs. Numbers that are counted are whole.
type Plan struct {
	Input Input `json:"input"` // with Rate and PerDay as they follow from what was told

	Workers       float64 `json:"workers"`      // those that may be missing included
	Left          float64 `json:"workers_left"` // when they are; of those that are needed, where there are too few
	WorkerRate    float64 `json:"worker_rate"`  // notifications a second that one carries at most
	WorkerCores   float64 `json:"worker_cores"` // that the busiest of those that are left uses at the peak
	Partitions    float64 `json:"partitions"`
	PartitionRate float64 `json:"partition_rate"` // notifications a second that one carries at most

	APNsConnections float64 `json:"apns_connections"` // of a worker
	FCMConnections  float64 `json:"fcm_connections"`  // of a worker

	DedupeCapacity float64 `json:"dedupe_capacity"` // ids of a window
	FilterBytes    float64 `json:"redis_filter_bytes"`
	UserBytes      float64 `json:"redis_user_bytes"`
	LimitBytes     float64 `json:"redis_limit_bytes"`
	CollapseBytes  float64 `json:"redis_collapse_bytes"`
	RedisBytes     float64 `json:"redis_bytes"` // all of them, once
	RedisPrimaries float64 `json:"redis_primaries"`
	RedisNodes     float64 `json:"redis_nodes"` // with replicas

	CassandraRows  float64 `json:"cassandra_rows"` // a second
	CassandraCores float64 `json:"cassandra_cores"`
	CassandraBytes float64 `json:"cassandra_bytes"` // on disk, all copies
	CassandraNodes float64 `json:"cassandra_nodes"`

	KafkaBytesIn float64 `json:"kafka_bytes_per_second"` // from producers
	KafkaBytes   float64 `json:"kafka_bytes"`            // disk to have

	SegmentBytes float64 `json:"segment_bytes"` // memory of each worker

	// Lines are the arithmetic, by parts of the fleet; within one each step follows from
	// those before.
	Lines []Line `json:"lines"`
	// Short says what is missing from what was given; empty = the load can be met.
	Short []Shortage `json:"short"`
}

// Line is one step.
type Line struct {
	Part string `json:"part"` // load, workers, kafka, …
	What string `json:"what"`
	Is   string `json:"is"`  // the result, with its unit
	How  string `json:"how"` // the arithmetic
}

// Shortage is something given that does not suffice.
type Shortage struct {
	// Name is the parameter that is too small.
	Name string  `json:"name"`
	Have float64 `json:"have"`
	Need float64 `json:"need"` // the least that suffices if all else stays; 0 = nothing would
	Why  string  `json:"why"`
}

// Of makes the plan. Its error is an *InputError: a number that is missing, out of its
// range or contradicts another. A load that cannot be met with what was given is no
// error: Short says so.
func Of(in Input) (*Plan, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	p := &Plan{Input: in, Lines: []Line{}, Short: []Shortage{}}
	for _, step := range []func() error{p.load, p.workers, p.connections, p.redis, p.cassandra, p.kafka, p.segments} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	order := []string{"load", "workers", "partitions", "providers", "redis", "cassandra", "kafka"}
	slices.SortStableFunc(p.Lines, func(a, b Line) int { return slices.Index(order, a.Part) - slices.Index(order, b.Part) })
	return p, nil
}

// line adds a step. The arithmetic is a format and its arguments.
func (p *Plan) line(part, what, is, how string, args ...any) {
	p.Lines = append(p.Lines, Line{part, what, is, fmt.Sprintf(how, args...)})
}

func (p *Plan) short(name string, have, need float64, why string, args ...any) {
	p.Short = append(p.Short, Shortage{name, have, need, fmt.Sprintf(why, args...)})
}

// load works out the peak and the day from what was told of them.
func (p *Plan) load() error {
	in := &p.Input
	const part = "load"
	if in.PerDay == 0 && in.Users > 0 && in.PerUserDay > 0 {
		in.PerDay = in.Users * in.PerUserDay
		p.line(part, "a day", num(in.PerDay), "%s users x %s", num(in.Users), num(in.PerUserDay))
	} else if in.PerDay > 0 {
		p.line(part, "a day", num(in.PerDay), "as told")
	}
	switch {
	case in.Rate == 0 && in.PerDay == 0:
		return wrong("rate", "nothing is asked: tell the rate, or per-day, or users with per-user-day")
	case in.Rate == 0:
		in.Rate = in.PerDay * in.Peak / day
		p.line(part, "peak", rate(in.Rate), "%s / 86,400 s x %s", num(in.PerDay), num(in.Peak))
	case in.PerDay == 0:
		in.PerDay = in.Rate * day / in.Peak
		p.line(part, "peak", rate(in.Rate), "as told")
		p.line(part, "a day", num(in.PerDay), "%s x 86,400 s / %s", rate(in.Rate), num(in.Peak))
	default:
		if average := in.PerDay / day; in.Rate < average*(1-1e-9) {
			return wrong("rate", "%s is less than the day's average: %s / 86,400 s = %s", rate(in.Rate), num(in.PerDay), rate(average))
		}
		p.line(part, "peak", rate(in.Rate), "as told: %s x the day's average, %s / 86,400 s = %s",
			num(in.Rate*day/in.PerDay), num(in.PerDay), rate(in.PerDay/day))
	}
	if in.Devices != 1 {
		p.line(part, "pushes at the peak", rate(p.pushes()), "%s x %s", rate(in.Rate), count(in.Devices, "device"))
	}
	return nil
}

// pushes is how many there are a second at the peak.
func (p *Plan) pushes() float64 { return p.Input.Rate * p.Input.Devices }
