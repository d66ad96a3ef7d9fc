//go:build linux

package worker

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/bench/parts"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/configs"
)

// Result is what was seen. Processor time is the operating system's account of each process, over the time that counts,
// in us for one notification. Pointers are nil where nothing can be said.
type Result struct {
	Rate         float64  `json:"notifications_per_second"`
	WorkerCPU    float64  `json:"worker_cpu_us"`
	KafkaCPU     float64  `json:"kafka_cpu_us"`
	RedisCPU     float64  `json:"redis_cpu_us"`
	CassandraCPU *float64 `json:"cassandra_cpu_us"` // nil with embedded servers: rows are in the worker's memory
	SimCPU       float64  `json:"sim_cpu_us"`
	Allocations  float64  `json:"allocs_per_notification"`
	RowsPerBatch *float64 `json:"rows_per_status_batch"` // nil with embedded servers
	// From producing a one-time password to the acceptance by a provider, in ms: beside the backlog, and before it was there.
	CriticalP99         *float64 `json:"critical_p99_ms"`
	CriticalUnloadedP99 *float64 `json:"critical_unloaded_p99_ms"`
	// The same of the notifications that are produced at a rate, from when each was due to be produced; nil without a rate.
	NotificationP50 *float64 `json:"notification_p50_ms"`
	NotificationP99 *float64 `json:"notification_p99_ms"`
	RSS             int      `json:"rss_mb"` // the peak of the worker that had most, in MiB
	// Parts are WorkerCPU by what it goes into (package bench/parts), which they add up to.
	Parts map[string]float64 `json:"parts_us"`

	// APNS2CPU is what apns2 takes for a push, measured in the same session, and APNS2Rate how many it sends a second on
	// this machine; the others are shares of them. Nil where it was not measured. See Compare.
	APNS2CPU     *float64           `json:"apns2_cpu_us"`
	APNS2Rate    *float64           `json:"apns2_pushes_per_second"`
	RateRatio    *float64           `json:"rate_of_apns2"`
	WorkerRatio  *float64           `json:"worker_of_apns2"`
	PartsRatio   map[string]float64 `json:"parts_of_apns2"`
	OthersCores  float64            `json:"others_cores"`    // busy with something else meanwhile
	Compiling    float64            `json:"compiling_cores"` // on which Java compiled meanwhile: part of what its servers used
	MeasuringCPU float64            `json:"measuring_cpu_us"`
	Profiled     float64            `json:"profiled"` // share of the worker's CPU time that is in the profiles of Parts

	AllocationParts     map[string]float64 `json:"allocs_by_part"`  // Allocations, by a sample
	AllocationOwners    map[string]float64 `json:"allocs_by_owner"` // the same by whose code allocated
	Shares              []float64          `json:"worker_shares"`   // of the pushes, by worker
	CriticalP50         *float64           `json:"critical_p50_ms"`
	CriticalUnloadedP50 *float64           `json:"critical_unloaded_p50_ms"`
	Notifications       int                `json:"notifications"`
	Seconds             float64            `json:"seconds"`
	Again               float64            `json:"again"` // answers that were to be tried again: 0 in a good run
	// Confirmed is how many status reads there were for each notification that was polled in the time that counts; nil
	// when all were polled before. It is above Options.Confirms where the reads after the assignment reach beyond the
	// warm-up, or what had waited for long was read again.
	Confirmed *float64 `json:"confirmed"`
	// Checked is how many pushes, and as many rows, had to be there after the run, those of the warm-up included, and were.
	Checked int `json:"checked"`

	// What it was run with.
	Workers             int       `json:"workers"`
	Partitions          int       `json:"partitions"`
	ProducedPerSecond   int       `json:"produced_per_second"` // 0 = all was there before
	Quota               int       `json:"quota_per_second"`    // of the project at Google; 0 = none
	WarmUp              int       `json:"warm_up"`
	CoolDown            int       `json:"cool_down"`
	Devices             int       `json:"devices"`
	Duplicates          float64   `json:"duplicates"`
	Minted              int       `json:"minted_per_second"`
	LimitRules          int       `json:"limit_rules"`
	Latency             float64   `json:"latency_ms"`
	CommitLog           string    `json:"commit_log"`           // empty with embedded servers
	PackedRows          bool      `json:"packed_rows"`          // false with embedded servers
	KafkaReplication    int       `json:"kafka_replication"`    // of each topic
	KeyspaceReplication string    `json:"keyspace_replication"` // of the status rows; empty with embedded servers
	Embedded            bool      `json:"embedded"`
	Cores               int       `json:"cores"`
	Go                  string    `json:"go"`
	Date                time.Time `json:"date"`
	Plot                string    `json:"plot"` // path; empty = none

	// For the plot.
	began, from, to time.Time // of the worker; of what counts
	committed       []sample
	accepted        servers.Rates
	waits           []latency.Wait
}

// describe notes what it is run with.
func (r *Result) describe(o *Options, c *configs.Config) {
	r.Workers, r.Partitions, r.ProducedPerSecond, r.Quota = o.Workers, c.Kafka.Topics.Partitions, o.Rate, o.Quota
	r.WarmUp, r.CoolDown, r.Devices, r.Duplicates, r.Minted = o.WarmUp, o.CoolDown, o.Devices, o.Duplicates, o.Minted
	r.LimitRules, r.Latency, r.Embedded, r.Plot = len(c.Limits.Rules), o.Latency.Seconds()*1000, o.Embedded, o.Plot
	r.KafkaReplication = c.Kafka.Topics.Replication
	if o.Embedded {
		return
	}
	r.CommitLog, r.PackedRows = cmp.Or(o.CommitLog, Periodic), c.Cassandra.PackedRows
	var replication []string
	for _, k := range slices.Sorted(maps.Keys(c.Cassandra.Replication)) {
		replication = append(replication, k+" "+c.Cassandra.Replication[k])
	}
	r.KeyspaceReplication = strings.Join(replication, ", ")
}

// figures are what happened between two moments.
func (r *Result) figures(start, end moment, byPart map[string]int64, embedded bool) {
	n := float64(end.committed - start.committed)
	r.Notifications, r.Seconds = int(n), end.At.Sub(start.At).Seconds()
	r.Rate = n / r.Seconds
	spent := end.Since(start.Account)
	r.WorkerCPU, r.KafkaCPU, r.RedisCPU, r.SimCPU = spent.Each(workerProcess, n), spent.Each(kafkaServer, n), spent.Each(redisServer, n), spent.Each(simulator, n)
	if used := spent.Each(cassandra, n); !embedded {
		r.CassandraCPU = &used
	}
	r.MeasuringCPU, r.OthersCores, r.Compiling = spent.Each(measuring, n), spent.Others, spent.Compiling
	r.Parts = parts.Spread(r.WorkerCPU, byPart)
	counted := func(name string, labels ...string) float64 {
		return summed(end.metrics, name, labels...) - summed(start.metrics, name, labels...)
	}
	r.Allocations = counted("go_memstats_mallocs_total") / n
	r.AllocationParts = parts.Spread(r.Allocations, parts.Less(end.allocations.byPart, start.allocations.byPart))
	r.AllocationOwners = parts.Spread(r.Allocations, parts.Less(end.allocations.byOwner, start.allocations.byOwner))
	if batches := counted("push_status_batch_rows_count"); batches > 0 {
		rows := counted("push_status_batch_rows_sum") / batches
		r.RowsPerBatch = &rows
	}
	r.Again, r.Confirmed = summed(end.metrics, "push_deliveries_total", `result="again"`), confirmed(start.metrics, end.metrics)
	r.Shares = shares(start.metrics, end.metrics)
}

// confirmed is the status reads of notifications by those that the workers polled
// between two scrapes, which is a little off where it had polled some and not
// yet read; nil when it polled none.
func confirmed(start, end []fleet.Metrics) *float64 {
	polled := summed(end, "push_batch_size_sum") - summed(start, "push_batch_size_sum")
	if polled == 0 {
		return nil
	}
	share := (summed(end, "push_status_read_ids_total") - summed(start, "push_status_read_ids_total")) / polled
	return &share
}

// Compare notes what apns2 takes for a push, in us of CPU, and how many it sends a second; and what shares of that are the
// CPU of the worker and of its parts, and the rate of all.
func (r *Result) Compare(cpu, rate float64) {
	worker, all := r.WorkerCPU/cpu, r.Rate/rate
	r.APNS2CPU, r.APNS2Rate, r.RateRatio, r.WorkerRatio = &cpu, &rate, &all, &worker
	r.PartsRatio = make(map[string]float64, len(r.Parts))
	for name, us := range r.Parts {
		r.PartsRatio[name] = us / cpu
	}
}
