package sizing

import (
	"fmt"
	"math"
)

const (
	filters    = 64  // hash tags of the filters, shards.Filters
	userShards = 256 // hash tags of what is kept by user, shards.Users
	windows    = 3   // filters that are there: the previous, the current and, made ahead, the next
)

// redis works out memory, processor time and nodes.
func (p *Plan) redis() error {
	p.filters()
	p.byUser()
	p.RedisBytes = p.FilterBytes + p.UserBytes + p.LimitBytes + p.CollapseBytes
	p.line("redis", "data", size(p.RedisBytes), "%s + %s + %s + %s", size(p.FilterBytes), size(p.UserBytes), size(p.LimitBytes), size(p.CollapseBytes))
	p.primaries()
	return nil
}

// filters works out the dedupe windows.
func (p *Plan) filters() {
	in := &p.Input
	ids := min(in.Rate*in.Window, in.PerDay*max(1, in.Window/day))
	p.DedupeCapacity = up(ids / in.Fill)
	p.line("redis", "dedupe.capacity", num(p.DedupeCapacity), "ids of the busiest window of %s: the smaller of %s x %s and of the day = %s; / %s",
		seconds(in.Window), rate(in.Rate), seconds(in.Window), num(ids), share(in.Fill))
	bits := bitsPerID(in.ErrorRate)
	one := p.DedupeCapacity / filters
	one = math.Ceil(one+6*math.Sqrt(one)) + 64 // no filter is full before the window is: dedupe.Size
	p.FilterBytes = windows * filters * FilterSize(one, in.ErrorRate)
	p.line("redis", "filters", size(p.FilterBytes), "%s windows x %s filters x %s ids x %s bits (-ln %s / ln²2) = %s; as it is allocated, %s a filter",
		num(windows), num(filters), num(one), num(bits), num(in.ErrorRate), size(windows*filters*one*bits/8), size(FilterSize(one, in.ErrorRate)))
}

// bitsPerID is what a Bloom filter takes for an id: -ln(rate) / (ln 2)².
func bitsPerID(rate float64) float64 { return -math.Log(rate) / (math.Ln2 * math.Ln2) }

// FilterSize is the memory in bytes that one Bloom filter of this capacity and error
// rate takes in Redis, as it is allocated.
func FilterSize(ids, errorRate float64) float64 { return sizeClass(ids * bitsPerID(errorRate) / 8) }

// sizeClass is the memory that jemalloc, Redis' allocator, gives for so many bytes: four
// sizes for each doubling. docs/plan.md has what was seen.
func sizeClass(bytes float64) float64 {
	if bytes <= 16 {
		return 16
	}
	step := math.Exp2(math.Ceil(math.Log2(bytes))) / 8
	return math.Ceil(bytes/step) * step
}

// byUser works out records, limiter states and collapse keys.
func (p *Plan) byUser() {
	in := &p.Input
	if in.Users == 0 {
		p.line("redis", "users, limits, collapse keys", "-", "not counted: users is not told")
		return
	}
	users := num(in.Users) + " users"
	p.UserBytes = in.Users * (in.RecordBytes + in.Devices*in.DeviceBytes)
	p.line("redis", "users", size(p.UserBytes), "%s x (%s + %s x %s)", users, size(in.RecordBytes), count(in.Devices, "device"), size(in.DeviceBytes))
	if in.LimitWindow > 0 {
		events := in.PerDay * in.LimitWindow / day
		states := min(in.Users, events)
		p.LimitBytes = states*in.StateBytes + events*in.EventBytes
		p.line("redis", "limits", size(p.LimitBytes), "%s users with a state x %s + %s events of %s x %s",
			num(states), size(in.StateBytes), num(events), seconds(in.LimitWindow), size(in.EventBytes))
	}
	if keys := in.PerDay * in.Collapse; keys > 0 {
		sets := min(in.Users, keys)
		p.CollapseBytes = sets*in.CollapseBytes + keys*in.CollapseKeyBytes
		p.line("redis", "collapse keys", size(p.CollapseBytes), "%s users with one x %s + %s of a day x %s",
			num(sets), size(in.CollapseBytes), num(keys), size(in.CollapseKeyBytes))
	}
}

// primaries works out how many nodes hold and serve it. A key's hash tag decides where
// it is, so the fullest node has its part of the tags rounded up.
func (p *Plan) primaries() {
	in := &p.Input
	byUser := p.RedisBytes - p.FilterBytes
	room, busy := in.RedisMemory*in.RedisFull, in.Rate*in.RedisCPU
	held := func(n float64) float64 {
		return p.FilterBytes*math.Ceil(filters/n)/filters + byUser*math.Ceil(userShards/n)/userShards
	}
	worked := func(n float64) float64 { return busy * math.Ceil(userShards/n) / userShards }
	memory := least(func(n float64) bool { return held(n) <= room*(1+1e-9) })
	cpu := least(func(n float64) bool { return worked(n) <= in.RedisBusy*(1+1e-9) })
	p.line("redis", "primaries by memory", most(memory), "%s a node x %s = %s; the fullest of %s has %s",
		size(in.RedisMemory), share(in.RedisFull), size(room), num(min(memory, userShards)), size(held(min(memory, userShards))))
	p.line("redis", "primaries by CPU", most(cpu), "%s x %s = %s; the busiest of %s has %s, %s may be",
		rate(in.Rate), seconds(in.RedisCPU), count(busy, "core"), num(min(cpu, userShards)), num(worked(min(cpu, userShards))), share(in.RedisBusy))
	p.RedisPrimaries = min(userShards, max(memory, cpu))
	p.RedisNodes = p.RedisPrimaries * (1 + in.RedisReplicas)
	p.line("redis", "nodes", num(p.RedisNodes), "%s x (1 + %s), which takes the place of what is lost; the fullest has %s and so needs %s",
		num(p.RedisPrimaries), count(in.RedisReplicas, "replica"), size(held(p.RedisPrimaries)), size(held(p.RedisPrimaries)/in.RedisFull))
	if memory > userShards {
		p.short("redis-memory", in.RedisMemory, up(held(userShards)/in.RedisFull),
			"data has %s hash tags, those of the filters %s: the fullest node has at least %s, and may have %s", num(userShards), num(filters), size(held(userShards)), size(room))
	}
	if cpu > userShards {
		p.short("redis-cpu", in.RedisCPU, in.RedisBusy*userShards/in.Rate,
			"what is kept by user has %s hash tags, and a node serves one on one thread: %s, and may be busy for %s", num(userShards), count(worked(userShards), "core"), share(in.RedisBusy))
	}
}

// least is the least number of nodes that suffices; above userShards if none does.
func least(suffices func(float64) bool) float64 {
	n := 1.0
	for n <= userShards && !suffices(n) {
		n++
	}
	return n
}

// most is a number of nodes in words, where least has found one.
func most(n float64) string {
	if n > userShards {
		return fmt.Sprintf("more than %s", num(userShards))
	}
	return num(n)
}
