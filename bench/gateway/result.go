//go:build linux

package gateway

import "github.com/pushfleet/pushfleet/bench/send"

// Load is one measurement. Processor time is the operating system's account of each process, in us for one message or
// receipt; so are allocations, by the gateway's own account.
type Load struct {
	Rate         float64  `json:"per_second"` // messages acknowledged, or receipts answered
	P50          *float64 `json:"p50_ms"`     // of a request, from when it was due to its answer; nil = none was answered
	P99          *float64 `json:"p99_ms"`
	GatewayCPU   float64  `json:"gateway_cpu_us"`
	KafkaCPU     float64  `json:"kafka_cpu_us"`
	CassandraCPU float64  `json:"cassandra_cpu_us"`
	CallerCPU    float64  `json:"caller_cpu_us"`
	Allocations  float64  `json:"gateway_allocs"`
	Bytes        float64  `json:"gateway_alloc_bytes"`
	Others       float64  `json:"others_cores"`    // busy with something else meanwhile
	Compiling    float64  `json:"compiling_cores"` // on which Java compiled meanwhile: part of what its servers used
	Rounds       int      `json:"rounds"`          // of which the last one counts
}

// Fanout is a message to all subscribers of a topic. Processor time and allocations are
// for one subscriber.
type Fanout struct {
	Subscribers  int     `json:"subscribers"`
	Seconds      float64 `json:"seconds"`    // from the request until all records of the lane are acknowledged
	Rate         float64 `json:"per_second"` // records
	FanoutCPU    float64 `json:"fanout_cpu_us"`
	KafkaCPU     float64 `json:"kafka_cpu_us"`
	CassandraCPU float64 `json:"cassandra_cpu_us"`
	Allocations  float64 `json:"fanout_allocs"`
	Bytes        float64 `json:"fanout_alloc_bytes"`
	PeakRSS      float64 `json:"fanout_peak_rss_mb"` // over all rounds
	Others       float64 `json:"others_cores"`       // busy with something else meanwhile
	Compiling    float64 `json:"compiling_cores"`    // on which Java compiled meanwhile: part of what its servers used
	Rounds       int     `json:"rounds"`             // of which the last one counts
}

// Result is what was seen.
type Result struct {
	Single     *Load `json:"single"`      // one message a request, as fast as they are answered
	SingleHalf *Load `json:"single_half"` // at half of that rate
	Batch      *Load `json:"batch"`
	Query      *Load `json:"query"` // nil with embedded servers

	Fanout *Fanout `json:"fanout"` // nil with embedded servers, and without subscribers

	StartRSS float64 `json:"start_rss_mb"` // of the gateway when it is ready, in MiB
	IdleRSS  float64 `json:"idle_rss_mb"`  // with idle connections and no requests
	// IdleFanout is of how many receivers a message was under way meanwhile; 0 = none was.
	IdleFanout int     `json:"idle_fanout"`
	PeakRSS    float64 `json:"peak_rss_mb"`

	// Acknowledged is how many messages were answered 202, and so many records are in Kafka.
	Acknowledged int64 `json:"acknowledged"`

	// Bars are what has to be reached, Aims what is hoped for.
	Bars []send.Bar `json:"bars"`
	Aims []send.Bar `json:"aims"`

	// What it was run with.
	Seconds     float64 `json:"seconds"`
	Connections int     `json:"connections"`
	Batches     int     `json:"batches"`
	Lines       int     `json:"lines"`
	Queries     int     `json:"queries"`
	Receipts    int     `json:"receipts"`
	Each        int     `json:"receipts_of_a_query"`
	Idle        int     `json:"idle"`
	Partitions  int     `json:"partitions"`
	MostRounds  int     `json:"most_rounds"`
	OnlyFanout  bool    `json:"only_fanout"` // the others are nil
	Embedded    bool    `json:"embedded"`
	Cores       int     `json:"cores"`
	Go          string  `json:"go"`
}

// What has to be reached on two cores with Kafka, Cassandra and the callers on the same machine.
const (
	leastSingle  = 20_000
	mostHalfP99  = 50 // ms
	leastBatch   = 100_000
	leastQuery   = 50_000
	mostIdleRSS  = 256 // MiB
	leastFanout  = 150_000
	aimFanout    = 250_000
	aimSingle    = 30_000
	aimBatch     = 200_000
	idleForMost  = 10_000    // connections that mostIdleRSS is about
	linesOfBatch = 500       // that leastBatch is about
	fanoutOf     = 1_000_000 // subscribers that leastFanout is about
)

// judge says which of them were reached.
func (r *Result) judge() {
	least := func(name string, want, got float64) send.Bar {
		return send.Bar{Name: name, Want: want, Got: got, Met: got >= want}
	}
	r.Bars, r.Aims = []send.Bar{}, []send.Bar{}
	if f := r.Fanout; f != nil && f.Subscribers == fanoutOf {
		r.Bars, r.Aims = append(r.Bars, least("fanout.per_second", leastFanout, f.Rate)), append(r.Aims, least("fanout.per_second", aimFanout, f.Rate))
	}
	if r.OnlyFanout {
		return
	}
	r.Bars = append(r.Bars, least("single.per_second", leastSingle, r.Single.Rate))
	if p99 := r.SingleHalf.P99; p99 != nil {
		r.Bars = append(r.Bars, send.Bar{Name: "single_half.p99_ms", Want: mostHalfP99, Got: *p99, Met: *p99 < mostHalfP99})
	}
	r.Aims = append(r.Aims, least("single.per_second", aimSingle, r.Single.Rate))
	if r.Lines == linesOfBatch {
		r.Bars = append(r.Bars, least("batch.per_second", leastBatch, r.Batch.Rate))
		r.Aims = append(r.Aims, least("batch.per_second", aimBatch, r.Batch.Rate))
	}
	if r.Query != nil {
		r.Bars = append(r.Bars, least("query.per_second", leastQuery, r.Query.Rate))
	}
	if r.Idle == idleForMost {
		r.Bars = append(r.Bars, send.Bar{Name: "idle_rss_mb", Want: mostIdleRSS, Got: r.IdleRSS, Met: r.IdleRSS <= mostIdleRSS})
	}
}
