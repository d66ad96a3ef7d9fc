package sizing_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/sizing"
)

// asked is the default input with some numbers set.
func asked(set map[string]float64) sizing.Input {
	in := sizing.Default()
	for _, p := range sizing.Parameters() {
		if v, told := set[p.Name]; told {
			*p.Field(&in) = v
		}
	}
	return in
}

func plan(t *testing.T, set map[string]float64) *sizing.Plan {
	t.Helper()
	p, err := sizing.Of(asked(set))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// want is one number of a plan, worked out by hand.
type want struct {
	what      string
	got, want float64
	why       string
}

func hold(t *testing.T, name string, wants []want) {
	t.Helper()
	for _, w := range wants {
		if math.Abs(w.got-w.want) > 0.005*math.Abs(w.want) { // three digits, as by hand
			t.Errorf("%s: %s is %v, want %v: %s", name, w.what, w.got, w.want, w.why)
		}
	}
}

// exactly is for what is counted.
func exactly(t *testing.T, name string, wants []want) {
	t.Helper()
	for _, w := range wants {
		if w.got != w.want {
			t.Errorf("%s: %s is %v, want %v: %s", name, w.what, w.got, w.want, w.why)
		}
	}
}

func TestThreeAndAHalfMillionOnEighteen(t *testing.T) {
	const name = "3.5 M/s"
	p := plan(t, map[string]float64{"rate": 3.5e6, "per-day": 12.6e9, "workers": 18, "partitions": 18, "lost-workers": 0, "open": 50_000})
	exactly(t, name, []want{
		{"shortages", float64(len(p.Short)), 0, "18 x 200,000 = 3.6 M is enough"},
		{"workers", p.Workers, 18, "as told; 3.5 M / 200,000 = 17.5"},
		{"worker rate", p.WorkerRate, 200_000, "10 connections x 1,000 streams / 50 ms; 8 cores x 0.7 / 21.2 us would be 264,000"},
		{"connections", p.APNsConnections, 10, "3.5 M / 18 = 194,444/s x 50 ms = 9,722 in flight / 1,000"},
		{"capacity", p.DedupeCapacity, 21e9, "3.5 M x 21,600 s is more than the day's 12.6 G / 0.6"},
		{"primaries", p.RedisPrimaries, 86, "46.2 cores of 256 tags, 3.87 tags fit into 70 % of a thread: 3 a node = 85.3"},
		{"Redis nodes", p.RedisNodes, 172, "twice"},
		{"Cassandra nodes", p.CassandraNodes, 69, "266 TB / 4 TB = 66.5, so 67, in thirds; by CPU 615 / 16 = 38.5"},
	})
	hold(t, name, []want{
		{"cores", p.WorkerCores, 4.122, "194,444 x 21.2 us"},
		{"partition rate", p.PartitionRate, 197_368, "37,500 / 190 ms"},
		{"filters", p.FilterBytes, 3 * 64 * 640 * 1 << 20, "21 G / 64 = 328 M ids x 14.378 bits = 590 MB, for which jemalloc gives 640 MiB, 3 windows of 64"},
		{"users", p.UserBytes, 0, "nobody has told how many"},
		{"Cassandra cores", p.CassandraCores, 615.3, "3.5 M x 29.3 us x 3 / 0.5"},
		{"Cassandra bytes", p.CassandraBytes, 133.056e12, "12.6 G x 32 days x 110 B x 3"},
		{"Kafka in", p.KafkaBytesIn, 1.68e9, "3.5 M x 480 B"},
		{"Kafka disk", p.KafkaBytes, 181.4e12, "12.6 G x 480 B x 7 days x 3 / 0.7"},
	})
}

func TestEightBillionADay(t *testing.T) {
	const name = "8 billion a day"
	p := plan(t, map[string]float64{"rate": 1e6, "per-day": 8e9, "users": 400e6, "fcm": 0.5, "fcm-quota": 30e6, "lost-zones": 1})
	exactly(t, name, []want{
		{"shortages", float64(len(p.Short)), 0, "500,000/s to FCM are 30 M a minute"},
		{"worker rate", p.WorkerRate, 80_000, "20 x 100 streams / 50 ms = 40,000/s to FCM, half of the pushes; APNs would allow 400,000"},
		{"left", p.Left, 13, "1 M / 80,000 = 12.5"},
		{"workers", p.Workers, 21, "a zone has 7 of 21, and one more may be missing: 13. Of 20 it has 7 too: 12"},
		{"partitions", p.Partitions, 26, "2 for each of 13: each of 21 is to have one"},
		{"APNs connections", p.APNsConnections, 2, "1 M x 2 / 26 = 76,923/s / 2 x 50 ms = 1,923"},
		{"FCM connections", p.FCMConnections, 20, "1,923 / 100"},
		{"Redis nodes", p.RedisNodes, 40, "13.2 cores of 256 tags, 13.6 tags fit into 70 % of a thread: 13 a node = 20 primaries; by memory 19: 14 of 256 tags of 587 GB and 4 of 64 of 77 GB are 36.9 GB; twice"},
		{"Cassandra nodes", p.CassandraNodes, 45, "169 TB / 4 TB = 42.2, so 43, in thirds; 176 cores / 16 = 11"},
	})
	hold(t, name, []want{
		{"capacity", p.DedupeCapacity, 13.33e9, "the day's 8 G is less than 21.6 G; / 0.6"},
		{"filters", p.FilterBytes, 3 * 64 * 384 * 1 << 20, "208 M ids x 14.378 bits = 375 MB; allocated 384 MiB"},
		{"users", p.UserBytes, 198.4e9, "400 M x (160 + 336)"},
		{"limits", p.LimitBytes, 314e9, "400 M x 165 + 8 G x 31"},
		{"collapse", p.CollapseBytes, 74.4e9, "a twentieth of 8 G: 400 M x 155 + 400 M x 31"},
		{"Cassandra cores", p.CassandraCores, 175.8, "1 M x 29.3 us x 3 / 0.5"},
		{"Cassandra bytes", p.CassandraBytes, 84.48e12, "8 G x 32 days x 110 B x 3"},
		{"Kafka disk", p.KafkaBytes, 115.2e12, "8 G x 480 B x 7 days x 3 / 0.7"},
	})
}

func TestTwoHundredMillionUsers(t *testing.T) {
	const name = "200 M users with 5 a day"
	p := plan(t, map[string]float64{"users": 200e6, "per-user-day": 5})
	exactly(t, name, []want{
		{"shortages", float64(len(p.Short)), 0, "nothing was given"},
		{"a day", p.Input.PerDay, 1e9, "200 M x 5"},
		{"workers", p.Workers, 2, "one would do, and may be missing"},
		{"partitions", p.Partitions, 2, "one for each"},
		{"APNs connections", p.APNsConnections, 3, "one worker alone: 46,296 x 50 ms = 2,315"},
		{"Redis nodes", p.RedisNodes, 10, "5 primaries of 38.4 GB hold 182 GB, 52 of 256 tags each; 4 would have 45 GB"},
		{"Cassandra nodes", p.CassandraNodes, 6, "19.2 TB / 4 TB = 4.8, in thirds"},
	})
	hold(t, name, []want{
		{"rate", p.Input.Rate, 46_296, "1 G / 86,400 x 4"},
		{"capacity", p.DedupeCapacity, 1.6667e9, "46,296 x 21,600 s = the day's 1 G, as the peak is 4 times the average and the window a quarter; / 0.6"},
		{"users", p.UserBytes, 99.2e9, "200 M x 496"},
		{"limits", p.LimitBytes, 64e9, "200 M x 165 + 1 G x 31"},
		{"collapse", p.CollapseBytes, 9.3e9, "a twentieth of 1 G: 50 M x (155 + 31)"},
		{"Cassandra bytes", p.CassandraBytes, 10.56e12, "1 G x 32 x 110 B x 3"},
		{"Kafka disk", p.KafkaBytes, 14.4e12, "1 G x 480 x 7 x 3 / 0.7"},
	})
}

func TestFourSegments(t *testing.T) {
	const name = "270 M users in 4 segments"
	p := plan(t, map[string]float64{"users": 270e6, "per-user-day": 1, "segments": 4, "limit-window": 7 * 86_400})
	exactly(t, name, []want{
		{"shortages", float64(len(p.Short)), 0, "nothing was given"},
		{"segments", p.SegmentBytes, 270e6, "270 M bits x 4 = 135 MB, which bench/README.md has seen as 136.1; twice while they change"},
		{"rate", p.Input.Rate, 12_500, "270 M / 86,400 = 3,125 x 4"},
		{"workers", p.Workers, 2, "one would do"},
		{"Redis nodes", p.RedisNodes, 14, "7 primaries of 35.1 GB; 6 would have 43 of 256 tags, 40.7 GB"},
		{"Cassandra nodes", p.CassandraNodes, 3, "5.2 TB"},
	})
	hold(t, name, []want{
		{"limits", p.LimitBytes, 103.1e9, "270 M x 165 + 1.89 G of a week x 31"},
		{"collapse", p.CollapseBytes, 2.511e9, "a twentieth of 270 M: 13.5 M x (155 + 31)"},
		{"users", p.UserBytes, 133.9e9, "270 M x 496"},
	})
}

// What was given and does not suffice is named, with what would.
func TestShortages(t *testing.T) {
	for _, tt := range []struct {
		why  string
		set  map[string]float64
		name string
		need float64
		says string
	}{
		{"the default settings open 40,000 records: 30,000 / 190 ms a partition",
			map[string]float64{"rate": 3.5e6, "partitions": 18, "lost-workers": 0}, "partitions", 36, "--open 49,260"},
		{"17 workers of 200,000/s", map[string]float64{"rate": 3.5e6, "workers": 17, "lost-workers": 0}, "workers", 18, "3,400,000/s"},
		{"18 workers, one of which may be missing", map[string]float64{"rate": 3.5e6, "workers": 18}, "workers", 19, "without 1 that may be missing"},
		{"24 partitions: the busiest of 18 has two of them, 291,667/s; 24 workers have one each",
			map[string]float64{"rate": 3.5e6, "workers": 18, "partitions": 24, "lost-workers": 0}, "workers", 24, "the busiest of 18 has 2 of 24 partitions, which is 291,667/s"},
		{"a partition has one worker, however fast it goes by itself",
			map[string]float64{"rate": 3.5e6, "partitions": 17, "lost-workers": 0, "open": 1e6}, "partitions", 18, "17 carry 3,400,000/s"},
		{"one project's default quota is 10,000/s", map[string]float64{"rate": 40_000, "fcm": 0.5}, "fcm-quota", 1.2e6, "600,000 messages a minute"},
		{"a filter has one hash tag of 64, and 1e14 ids a day make it larger than a node",
			map[string]float64{"rate": 2e9 / 2, "per-day": 8e13, "cores": 1024, "in-flight": 1e7, "apns-connections": 1e4, "redis-cpu": 0}, "redis-memory", 0, "hash tags"},
		{"256 hash tags on a thread each", map[string]float64{"rate": 20e6, "per-day": 1e9}, "redis-cpu", 256 * 0.7 / 20e6, "one thread"},
	} {
		p := plan(t, tt.set)
		if len(p.Short) != 1 {
			t.Errorf("%s: shortages %+v, want one of %s", tt.why, p.Short, tt.name)
			continue
		}
		s := p.Short[0]
		if s.Name != tt.name || tt.need != 0 && math.Abs(s.Need-tt.need) > 1e-9*tt.need || !strings.Contains(s.Why, tt.says) {
			t.Errorf("%s: %+v, want %s %v, %q", tt.why, s, tt.name, tt.need, tt.says)
		}
		// What it says would suffice does.
		if tt.set[s.Name] = s.Need; s.Name == "partitions" && p.Input.Workers > 0 {
			continue
		}
		if again := plan(t, tt.set); len(again.Short) > 0 {
			t.Errorf("%s: with %s %v it is still short: %+v", tt.why, s.Name, s.Need, again.Short)
		}
	}
}

func TestInputIsChecked(t *testing.T) {
	for _, tt := range []struct {
		set  map[string]float64
		name string
		says string
	}{
		{nil, "rate", "nothing is asked"},
		{map[string]float64{"users": 5}, "rate", "nothing is asked"},
		{map[string]float64{"rate": -1}, "rate", "-1 is not possible"},
		{map[string]float64{"rate": math.NaN()}, "rate", "not possible"},
		{map[string]float64{"rate": 1, "busy": 1.5}, "busy", "want 0.01 to 1"},
		{map[string]float64{"rate": 1, "worker-cpu": 0}, "worker-cpu", "0us is not possible"},
		{map[string]float64{"rate": 1, "workers": 1.5}, "workers", "a whole number"},
		{map[string]float64{"rate": 1, "lost-zones": 3}, "lost-zones", "3 of 3 zones: nothing would be left"},
		{map[string]float64{"rate": 10, "per-day": 1e9}, "rate", "less than the day's average: 1,000,000,000 / 86,400 s = 11,574/s"},
		{map[string]float64{"rate": 10, "segments": 4}, "segments", "tell users"},
		{map[string]float64{"rate": 10, "segments": 4, "users": 5e9}, "segments", "4,294,967,295"},
		{map[string]float64{"rate": 1e9, "apns-latency": 60}, "rate", "more than 100,000 workers"},
	} {
		_, err := sizing.Of(asked(tt.set))
		if wrong, is := errors.AsType[*sizing.InputError](err); !is || wrong.Name != tt.name || !strings.Contains(wrong.Why, tt.says) {
			t.Errorf("%v: %v, want %s: %q", tt.set, err, tt.name, tt.says)
		}
	}
}

// More to do never needs less, whatever else is told.
func TestMoreNeverNeedsLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		less := asked(map[string]float64{
			"rate": rapid.Float64Range(1, 5e6).Draw(t, "rate"), "users": rapid.Float64Range(0, 1e9).Draw(t, "users"),
			"fcm": rapid.SampledFrom([]float64{0, 0.3, 1}).Draw(t, "fcm"), "devices": rapid.Float64Range(0.5, 3).Draw(t, "devices"),
			"lost-workers": float64(rapid.IntRange(0, 6).Draw(t, "lost-workers")), "zones": 3, "lost-zones": float64(rapid.IntRange(0, 2).Draw(t, "lost-zones")),
			"open": rapid.SampledFrom([]float64{10_000, 40_000, 400_000}).Draw(t, "open"), "cores": rapid.Float64Range(1, 32).Draw(t, "cores"),
			"partitions": float64(rapid.SampledFrom([]int{0, 0, 48, 500}).Draw(t, "partitions")),
		})
		more := less
		which := rapid.SampledFrom([]string{"rate", "users", "devices", "lost-workers", "lost-zones", "worker-cpu", "apns-latency", "redis-cpu", "ttl"}).Draw(t, "which")
		for _, p := range sizing.Parameters() {
			if f := p.Field(&more); p.Name == which {
				*f = min(p.Most, max(*f*rapid.Float64Range(1, 3).Draw(t, "times"), 0))
				if p.Kind == sizing.Whole {
					*f = min(2, math.Ceil(*f+1))
				}
			}
		}
		if which == "lost-workers" {
			more.LostWorkers = less.LostWorkers + 1
		}
		a, err := sizing.Of(less)
		if err != nil {
			t.Fatal(err)
		}
		b, err := sizing.Of(more)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []struct {
			what       string
			less, more float64
		}{
			{"workers", a.Workers, b.Workers}, {"workers left", a.Left, b.Left}, {"partitions", a.Partitions, b.Partitions},
			{"Redis bytes", a.RedisBytes, b.RedisBytes}, {"Redis nodes", a.RedisNodes, b.RedisNodes}, {"capacity", a.DedupeCapacity, b.DedupeCapacity},
			{"Cassandra cores", a.CassandraCores, b.CassandraCores}, {"Cassandra bytes", a.CassandraBytes, b.CassandraBytes},
			{"Cassandra nodes", a.CassandraNodes, b.CassandraNodes}, {"Kafka bytes", a.KafkaBytes, b.KafkaBytes},
			{"shortages", float64(len(a.Short)), float64(len(b.Short))},
		} {
			slower := which == "devices" || which == "worker-cpu" || which == "apns-latency" // a worker that does less is on fewer partitions
			if w.more < w.less && !(slower && w.what == "partitions") {
				t.Errorf("more %s: %s went from %v to %v", which, w.what, w.less, w.more)
			}
		}
	})
}

// A plan that is not short holds together: what is left carries the peak, each within
// what it can, and every worker has a partition unless the partitions were given.
func TestPlansHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := asked(map[string]float64{
			"rate": rapid.Float64Range(1, 5e6).Draw(t, "rate"), "lost-workers": float64(rapid.IntRange(0, 6).Draw(t, "lost-workers")),
			"lost-zones": float64(rapid.IntRange(0, 2).Draw(t, "lost-zones")), "open": rapid.SampledFrom([]float64{10_000, 40_000, 400_000}).Draw(t, "open"),
			"partitions": float64(rapid.SampledFrom([]int{0, 0, 48, 500}).Draw(t, "partitions")),
			"workers":    float64(rapid.SampledFrom([]int{0, 0, 30, 100}).Draw(t, "workers")), "fcm": 0.5, "fcm-quota": 1e9,
		})
		p, err := sizing.Of(in)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Short) > 0 {
			return
		}
		busiest := p.Input.Rate * math.Ceil(p.Partitions/p.Left) / p.Partitions
		switch {
		case busiest > p.WorkerRate*(1+1e-6):
			t.Errorf("the busiest of %v on %v partitions has %v, one carries %v", p.Left, p.Partitions, busiest, p.WorkerRate)
		case p.Input.Rate/p.Partitions > p.PartitionRate*(1+1e-6):
			t.Errorf("%v a partition, one carries %v", p.Input.Rate/p.Partitions, p.PartitionRate)
		case in.Partitions == 0 && p.Partitions < p.Workers:
			t.Errorf("%v partitions for %v workers", p.Partitions, p.Workers)
		case p.Left < 1 || p.APNsConnections > in.APNsConnections || p.FCMConnections > in.FCMConnections:
			t.Errorf("%v left, %v and %v connections", p.Left, p.APNsConnections, p.FCMConnections)
		}
	})
}

// What the defaults say they are, they are.
func TestDefaultsAreThoseOfTheConfiguration(t *testing.T) {
	c, in := configs.Default(), sizing.Default()
	exactly(t, "worker.yaml", []want{
		{"in-flight", in.InFlight, float64(c.Send.InFlight), "send.in_flight"},
		{"apns-streams", in.APNsStreams, float64(c.Send.APNS.Streams), "send.apns.streams"},
		{"apns-connections", in.APNsConnections, float64(c.Send.APNS.Connections), "send.apns.connections"},
		{"fcm-streams", in.FCMStreams, float64(c.Send.FCM.Streams), "send.fcm.streams"},
		{"fcm-connections", in.FCMConnections, float64(c.Send.FCM.Connections), "send.fcm.connections"},
		{"open", in.Open, float64(c.Batch.Records * c.Batch.OpenPerPartition), "batch"},
		{"retention", in.Retention, c.Kafka.Topics.Retention.Seconds(), "kafka.topics.retention"},
		{"window", in.Window, c.Dedupe.Window.Seconds(), "dedupe.window"},
		{"error-rate", in.ErrorRate, c.Dedupe.ErrorRate, "dedupe.error_rate"},
		{"ttl", in.TTL, c.Cassandra.TTL.Seconds(), "cassandra.ttl"},
	})
}

// Filters take what dedupe says of a window, and what the allocator adds: less than a
// quarter.
func TestFiltersAreThoseOfDedupe(t *testing.T) {
	if shards.Filters != 64 || shards.Users != 256 {
		t.Fatal("sizing/redis.go counts 64 and 256 hash tags")
	}
	for _, perDay := range []float64{1e6, 20e6, 1e9, 1e11} {
		p := plan(t, map[string]float64{"per-day": perDay})
		one := float64(dedupe.Size(int64(p.DedupeCapacity), 0.001))
		if r := p.FilterBytes / (3 * one); r < 1-1e-6 || r > 1.25 {
			t.Errorf("%v a day: %v bytes for three windows of %v", perDay, p.FilterBytes, one)
		}
	}
	// Seen in a Redis 7.0 (docs/plan.md): filters of 4,000,000 ids have 14.68 bits an id, of 312,500 16.82.
	for _, seen := range []struct{ ids, bits float64 }{{4_000_000, 14.68}, {312_500, 16.82}} {
		if got := sizing.FilterSize(seen.ids, 0.001) * 8 / seen.ids; math.Abs(got-seen.bits) > 0.01*seen.bits {
			t.Errorf("a filter of %v ids has %v bits an id, %v were seen", seen.ids, got, seen.bits)
		}
	}
}

func TestKindsReadWhatTheyWrite(t *testing.T) {
	for _, tt := range []struct {
		kind sizing.Kind
		text string
		want float64
	}{
		{sizing.Number, "3.5M", 3.5e6}, {sizing.Number, "8G", 8e9}, {sizing.Number, "3,500,000", 3.5e6}, {sizing.Number, "1e6", 1e6}, {sizing.Whole, "40k", 40_000},
		{sizing.Share, "50%", 0.5}, {sizing.Share, "0.5", 0.5},
		{sizing.Duration, "21.2us", 21.2e-6}, {sizing.Duration, "50ms", 0.05}, {sizing.Duration, "168h", 604_800}, {sizing.Duration, "7d", 604_800}, {sizing.Duration, "0", 0},
		{sizing.Bytes, "480", 480}, {sizing.Bytes, "64GB", 64e9}, {sizing.Bytes, "64GiB", 64 << 30},
	} {
		if got, err := tt.kind.Parse(tt.text); err != nil || math.Abs(got-tt.want) > 1e-12*tt.want {
			t.Errorf("%q is %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
	for kind, texts := range map[sizing.Kind][]string{
		sizing.Number: {"", "M", "3.5X", "5 %", "3.5MM"}, sizing.Share: {"0.5M"}, sizing.Duration: {"50", "1h30m", "50M"}, sizing.Bytes: {"5M", "-"},
	} {
		for _, text := range texts {
			if got, err := kind.Parse(text); err == nil {
				t.Errorf("%q was read as %v", text, got)
			}
		}
	}
	for _, p := range sizing.Parameters() {
		if got, err := p.Kind.Parse(p.Kind.Text(p.Default)); err != nil || math.Abs(got-p.Default) > 1e-12*p.Default {
			t.Errorf("%s: %v prints as %q, which is %v, %v", p.Name, p.Default, p.Kind.Text(p.Default), got, err)
		}
	}
}

// Each number of the input has one parameter, with a default within its range and
// where that comes from.
func TestParametersAreTheInput(t *testing.T) {
	in, names := sizing.Input{}, map[string]bool{}
	for _, p := range sizing.Parameters() {
		f := p.Field(&in)
		if *f != 0 {
			t.Errorf("%s is the number of another parameter", p.Name)
		}
		*f = 1
		if names[p.Name] || p.Text == "" || p.Default < p.Least || p.Default > p.Most || p.Default != 0 && p.Source == "" {
			t.Errorf("%+v: named twice, without text or source, or out of its range", p)
		}
		names[p.Name] = true
	}
	if n := len(names); n != fields(in) {
		t.Errorf("%d parameters for %d numbers", n, fields(in))
	}
}

func fields(in sizing.Input) int { return reflect.TypeOf(in).NumField() }
