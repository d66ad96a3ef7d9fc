//go:build linux

package gates

import "github.com/pushfleet/pushfleet/bench/send"

// What has to be reached on two cores with Redis on the same machine.
const (
	leastRate      = 130_000
	mostWorkerCPU  = 2.0 // us a notification
	mostRedisCPU   = 6.0
	leastRatio     = 2.5 // to the published way
	mostRecordCPU  = 0.8 // us a user
	mostSegment    = 50  // ns
	mostAllocs     = 0
	mostWrong      = 0
	spikeRatioOver = 5 // p99 of a batch stays under it
)

// bars says which of them were reached.
func bars(r *Result) []send.Bar {
	least := func(name string, want, got float64) send.Bar {
		return send.Bar{Name: name, Want: want, Got: got, Met: got >= want}
	}
	most := func(name string, want, got float64) send.Bar {
		return send.Bar{Name: name, Want: want, Got: got, Met: got <= want}
	}
	return []send.Bar{
		least("notifications_per_second", leastRate, r.Rate),
		most("worker_cpu_us", mostWorkerCPU, r.WorkerCPU),
		most("redis_cpu_us", mostRedisCPU, r.RedisCPU),
		least("ratio_one_call_per_user", leastRatio, r.RatioOneCall),
		most("user_record_cpu_us", mostRecordCPU, r.RecordCPU),
		most("segment_lookup_ns", mostSegment, r.Segment),
		most("segment_lookup_allocs", mostAllocs, r.SegmentAllocs),
		most("spike.wrong_decisions", mostWrong, float64(r.Spike.Wrong)),
		{Name: "spike.ratio_p99", Want: spikeRatioOver, Got: r.Spike.RatioP99, Met: r.Spike.RatioP99 < spikeRatioOver},
	}
}
