package sizing

import (
	"fmt"
	"math"
)

// Kind says what a parameter counts.
type Kind int

// The kinds.
const (
	Number   Kind = iota // any number
	Whole                // a whole number
	Share                // a part of 1
	Duration             // seconds
	Bytes
)

// Parameter is one number of an Input: for a flag, a slider or a page.
type Parameter struct {
	Name    string // as a flag: worker-cpu
	Kind    Kind
	Default float64
	// Least and Most are the range, both included.
	Least, Most float64
	Text        string // what it is
	// Source is where the default comes from; empty = nothing to be cited: 0, or
	// whatever is asked for.
	Source string
	Field  func(*Input) *float64 // where it is in an Input
}

// InputError is a number that no plan can be made from.
type InputError struct {
	Name string // of the parameter
	Why  string
}

// Error implements error.
func (e *InputError) Error() string { return e.Name + ": " + e.Why }

func wrong(name, format string, args ...any) error {
	return &InputError{name, fmt.Sprintf(format, args...)}
}

const (
	micro  = 1e-6
	minute = 60.0
	hour   = 3600.0
	day    = 24 * hour

	gb = 1e9
	tb = 1e12

	wholeRun = "bench/README.md, \"One worker's whole way\", 2026-11-23, nothing special"
	seenSize = "docs/plan.md, \"Bytes that were measured\""
	assumed  = "an assumption: put yours"
)

// Parameters are all numbers of an Input, in the order in which people think of
// them. The list is new at each call.
func Parameters() []Parameter {
	var all []Parameter
	for _, part := range [][]Parameter{asked(), ofWorkers(), ofProviders(), ofKafka(), ofRedis(), ofCassandra()} {
		all = append(all, part...)
	}
	return all
}

func asked() []Parameter {
	return []Parameter{
		{"rate", Number, 0, 0, 1e9, "notifications a second at the peak; 0 = the day's average x peak", "", func(i *Input) *float64 { return &i.Rate }},
		{"per-day", Number, 0, 0, 1e14, "notifications a day; 0 = users x per-user-day, or rate x 86,400 / peak", "", func(i *Input) *float64 { return &i.PerDay }},
		{"users", Number, 0, 0, 1e11, "users with a record; 0 = unknown, and what is kept by user is left out", "", func(i *Input) *float64 { return &i.Users }},
		{"per-user-day", Number, 0, 0, 1e6, "notifications of a user a day, where per-day is not told", "", func(i *Input) *float64 { return &i.PerUserDay }},
		{"peak", Number, 4, 1, 1e5, "the peak by the average of the day, where only one of rate and day is told", assumed, func(i *Input) *float64 { return &i.Peak }},
		{"devices", Number, 1, 0.01, 100, "devices of a user: pushes a notification", "bench/README.md, \"One worker's whole way\": one device a user", func(i *Input) *float64 { return &i.Devices }},
		{"segments", Whole, 0, 0, 1024, "segments of users, loaded by each worker", "", func(i *Input) *float64 { return &i.Segments }},
	}
}

func ofWorkers() []Parameter {
	return []Parameter{
		{"workers", Whole, 0, 0, 1e6, "workers that there are; 0 = as many as are needed", "", func(i *Input) *float64 { return &i.Workers }},
		{"cores", Number, 8, 0.1, 1024, "cores of a worker", assumed, func(i *Input) *float64 { return &i.Cores }},
		{"busy", Share, 0.7, 0.01, 1, "share of a worker's cores that the peak may take", assumed, func(i *Input) *float64 { return &i.Busy }},
		{"worker-cpu", Duration, 21.2 * micro, 1e-8, 1, "a worker's CPU for a notification to one device", wholeRun, func(i *Input) *float64 { return &i.WorkerCPU }},
		{"device-cpu", Duration, 5.6 * micro, 0, 1, "and for each further device: the push 3.2us, the row 2.4us", "bench/README.md: ours_apns, 2026-11-22; status rows in batches of 200, 2.25 us, rounded up", func(i *Input) *float64 { return &i.DeviceCPU }},
		{"lost-workers", Whole, 1, 0, 1e5, "workers that may be missing at the peak: a rolling restart takes one", "deploy/kubernetes replaces one at a time", func(i *Input) *float64 { return &i.LostWorkers }},
		{"zones", Whole, 3, 1, 100, "zones that the workers are spread over", assumed, func(i *Input) *float64 { return &i.Zones }},
		{"lost-zones", Whole, 0, 0, 99, "zones of them that may be missing at the peak", "", func(i *Input) *float64 { return &i.LostZones }},
	}
}

func ofProviders() []Parameter {
	return []Parameter{
		{"in-flight", Whole, 10_000, 1, 1e7, "sends under way per route of a worker (send.in_flight)", "configs/worker.yaml", func(i *Input) *float64 { return &i.InFlight }},
		{"apns-latency", Duration, 0.050, 1e-4, 60, "APNs' time to an answer, on average", "DESIGN.md and bench/README.md reckon with it; no measurement of Apple", func(i *Input) *float64 { return &i.APNsLatency }},
		{"apns-streams", Whole, 1000, 1, 1e6, "requests at once that Apple grants on a connection", "configs/worker.yaml, send.apns", func(i *Input) *float64 { return &i.APNsStreams }},
		{"apns-connections", Whole, 10, 1, 1e4, "connections of a worker to APNs at most (send.apns.connections)", "configs/worker.yaml, send.apns", func(i *Input) *float64 { return &i.APNsConnections }},
		{"fcm", Share, 0, 0, 1, "share of the pushes that go to FCM", "", func(i *Input) *float64 { return &i.FCM }},
		{"fcm-latency", Duration, 0.050, 1e-4, 60, "FCM's time to an answer, on average", "as apns-latency", func(i *Input) *float64 { return &i.FCMLatency }},
		{"fcm-streams", Whole, 100, 1, 1e6, "requests at once that Google grants on a connection", "configs/worker.yaml, send.fcm", func(i *Input) *float64 { return &i.FCMStreams }},
		{"fcm-connections", Whole, 20, 1, 1e4, "connections of a worker to FCM at most (send.fcm.connections)", "configs/worker.yaml, send.fcm", func(i *Input) *float64 { return &i.FCMConnections }},
		{"fcm-quota", Number, 600_000, 1, 1e12, "messages a minute that Google grants all projects together", "configs/worker.yaml, send.fcm: one project's default", func(i *Input) *float64 { return &i.FCMQuota }},
	}
}

func ofKafka() []Parameter {
	return []Parameter{
		{"partitions", Whole, 0, 0, 1e6, "partitions that the lane has; 0 = as many as are needed", "", func(i *Input) *float64 { return &i.Partitions }},
		{"open", Whole, 40_000, 1, 1e8, "open records of a partition (batch.records x batch.open_per_partition)", "configs/worker.yaml, batch", func(i *Input) *float64 { return &i.Open }},
		{"way", Duration, 0.140, 1e-4, 60, "a batch's time in a worker beside the provider's latency", "20 ms linger and, at 200,000 rows/s, 10 ms in a status batch (configs/worker.yaml), 11 + 18 ms Bloom check and add (bench/README.md, Parts), 79 ms preferences to limits (there, p99 at the usual rate): 138 ms", func(i *Input) *float64 { return &i.Way }},
		{"message-bytes", Bytes, 480, 1, 1 << 20, "a record in Kafka", "crowd/records.go: what `pushbench worker` produces; compression is not counted", func(i *Input) *float64 { return &i.MessageBytes }},
		{"retention", Duration, 168 * hour, 1, 3650 * day, "how long Kafka keeps records (kafka.topics.retention)", "configs/worker.yaml", func(i *Input) *float64 { return &i.Retention }},
		{"kafka-copies", Whole, 3, 1, 10, "copies of each partition", "docs/operations.md", func(i *Input) *float64 { return &i.KafkaCopies }},
		{"kafka-full", Share, 0.7, 0.01, 1, "share of the brokers' disks that may be full", assumed, func(i *Input) *float64 { return &i.KafkaFull }},
		{"kafka-cpu", Duration, 2.3 * micro, 0, 1, "a broker's CPU for a notification read and committed", wholeRun, func(i *Input) *float64 { return &i.KafkaCPU }},
	}
}

func ofRedis() []Parameter {
	return []Parameter{
		{"window", Duration, 6 * hour, hour, 30 * day, "dedupe.window", "configs/worker.yaml", func(i *Input) *float64 { return &i.Window }},
		{"error-rate", Share, 0.001, 1e-9, 0.49, "dedupe.error_rate", "configs/worker.yaml", func(i *Input) *float64 { return &i.ErrorRate }},
		{"fill", Share, 0.6, 0.01, 1, "how full the busiest window may end", "what `pushctl dedupe fill` aims at", func(i *Input) *float64 { return &i.Fill }},
		{"record-bytes", Bytes, 160, 0, 1 << 20, "a user's record in Redis without devices: profile, a quarter with preferences", seenSize, func(i *Input) *float64 { return &i.RecordBytes }},
		{"device-bytes", Bytes, 336, 0, 1 << 20, "each device: 200 in the record, 136 in the index of tokens", seenSize, func(i *Input) *float64 { return &i.DeviceBytes }},
		{"limit-window", Duration, 24 * hour, 0, 31 * day, "the longest window of limits.rules; 0 = no rules", "configs/worker.yaml, the example; without rules put 0", func(i *Input) *float64 { return &i.LimitWindow }},
		{"state-bytes", Bytes, 165, 0, 1 << 20, "a user's limiter state without events", seenSize, func(i *Input) *float64 { return &i.StateBytes }},
		{"event-bytes", Bytes, 31, 0, 1 << 20, "each event in it", seenSize, func(i *Input) *float64 { return &i.EventBytes }},
		{"collapse", Share, 0.05, 0, 1, "share of notifications with a collapse key, each another, that are handed over to be sent later, or shed; kept a day", assumed, func(i *Input) *float64 { return &i.Collapse }},
		{"collapse-bytes", Bytes, 155, 0, 1 << 20, "a user's set of collapse keys without keys", seenSize, func(i *Input) *float64 { return &i.CollapseBytes }},
		{"collapse-key-bytes", Bytes, 31, 0, 1 << 20, "each key in it", seenSize, func(i *Input) *float64 { return &i.CollapseKeyBytes }},
		{"redis-replicas", Whole, 1, 0, 10, "replicas of each primary, in another zone", assumed, func(i *Input) *float64 { return &i.RedisReplicas }},
		{"redis-memory", Bytes, 64 * gb, 1e6, 1e15, "memory of a node", assumed, func(i *Input) *float64 { return &i.RedisMemory }},
		{"redis-full", Share, 0.6, 0.01, 1, "share of it for data: the rest is for growth, fragments, copies while it forks", assumed, func(i *Input) *float64 { return &i.RedisFull }},
		{"redis-cpu", Duration, 13.2 * micro, 0, 1, "Redis' CPU for a notification, one limit rule", wholeRun, func(i *Input) *float64 { return &i.RedisCPU }},
		{"redis-busy", Share, 0.7, 0.01, 1, "share of a node's one thread that the peak may take", assumed, func(i *Input) *float64 { return &i.RedisBusy }},
	}
}

func ofCassandra() []Parameter {
	return []Parameter{
		{"rows", Number, 1, 0.01, 100, "status rows a push: one, and one for each hand-over", "bench/README.md: DELIVERED at the first attempt", func(i *Input) *float64 { return &i.Rows }},
		{"row-bytes", Bytes, 110, 1, 1 << 20, "a row on disk, compressed", seenSize, func(i *Input) *float64 { return &i.RowBytes }},
		{"ttl", Duration, 720 * hour, hour, 3650 * day, "how long rows live (cassandra.ttl)", "configs/worker.yaml", func(i *Input) *float64 { return &i.TTL }},
		{"dropped-after", Duration, 48 * hour, 0, 365 * day, "and how long they stay on disk after that: a time window of 24h and gc_grace_seconds, 24h", "deploy/cassandra/schema.cql", func(i *Input) *float64 { return &i.DroppedAfter }},
		{"cassandra-copies", Whole, 3, 1, 10, "copies of each row (cassandra.replication)", "configs/worker.yaml, in production", func(i *Input) *float64 { return &i.CassandraCopies }},
		{"cassandra-cpu", Duration, 29.3 * micro, 0, 1, "a node's CPU for a row", wholeRun + "; one copy", func(i *Input) *float64 { return &i.CassandraCPU }},
		{"cassandra-cores", Number, 16, 0.1, 1024, "cores of a node", "docs/devicelimits.md, Sizing", func(i *Input) *float64 { return &i.CassandraCores }},
		{"cassandra-busy", Share, 0.5, 0.01, 1, "share of them that the peak may take: the rest is for compaction, repair, a node that is away", "docs/devicelimits.md, Sizing", func(i *Input) *float64 { return &i.CassandraBusy }},
		{"cassandra-disk", Bytes, 4 * tb, 1e6, 1e18, "disk of a node", assumed, func(i *Input) *float64 { return &i.CassandraDisk }},
		{"cassandra-full", Share, 0.5, 0.01, 1, "share of it that may be full: compaction takes as much again", "docs/devicelimits.md, Sizing", func(i *Input) *float64 { return &i.CassandraFull }},
	}
}

// check says which number is out of its range.
func (in *Input) check() error {
	for _, p := range Parameters() {
		switch v := *p.Field(in); {
		case math.IsNaN(v) || v < p.Least || v > p.Most:
			return wrong(p.Name, "%s is not possible: want %s to %s", p.Kind.Text(v), p.Kind.Text(p.Least), p.Kind.Text(p.Most))
		case p.Kind == Whole && v != math.Trunc(v):
			return wrong(p.Name, "%v is not possible: want a whole number", v)
		}
	}
	if in.LostZones >= in.Zones {
		return wrong("lost-zones", "%s of %s zones: nothing would be left", num(in.LostZones), num(in.Zones))
	}
	return nil
}
