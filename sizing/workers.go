package sizing

import (
	"fmt"
	"math"
)

// commitEarly is the part of a partition's open records that may be done and wait for
// the commit: pipeline/tracker.go commits when a quarter is.
const commitEarly = 0.25

// mostWorkers is where searching ends: no group of consumers has as many.
const mostWorkers = 100_000

// pool is a worker's connections to one provider.
type pool struct {
	name                          string
	share                         float64 // of the pushes
	latency, streams, connections float64
}

func (in *Input) pools() []pool {
	var used []pool
	for _, l := range []pool{
		{"APNs", 1 - in.FCM, in.APNsLatency, in.APNsStreams, in.APNsConnections},
		{"FCM", in.FCM, in.FCMLatency, in.FCMStreams, in.FCMConnections},
	} {
		if l.share > 0 {
			used = append(used, l)
		}
	}
	return used
}

// workers works out what one carries, how many there are to be, and on how many
// partitions.
func (p *Plan) workers() error {
	in := &p.Input
	p.workerRate()
	p.partitionRate()
	if in.Rate/p.WorkerRate > mostWorkers {
		return wrong("rate", "%s need more than %s workers of %s each", rate(in.Rate), num(mostWorkers), rate(p.WorkerRate))
	}
	alone := up(in.Rate / p.WorkerRate)
	left := alone
	if in.Partitions > 0 {
		left = p.leftOn(in.Partitions)
	}
	need := in.workersFor(left)
	p.line("workers", "at the peak", num(left), "%s", p.whyLeft(left))
	p.Workers, p.Left = need, left
	switch {
	case in.Workers == 0:
		p.line("workers", "workers", num(need), "%s + %s", num(left), in.lost(need))
	case in.Workers < need:
		p.Workers = in.Workers
		p.line("workers", "workers", num(in.Workers), "as told; needed: %s + %s = %s", num(left), in.lost(need), num(need))
		p.shortOfWorkers(need)
	default:
		p.Workers, p.Left = in.Workers, in.left(in.Workers)
		p.line("workers", "workers", num(in.Workers), "as told: %s and %s", num(p.Left), in.lost(in.Workers))
	}
	p.partitions(alone)
	busiest := p.busiest()
	p.WorkerCores = busiest * in.cpu()
	p.line("workers", "cores in use", fmt.Sprintf("%s of %s", num(p.WorkerCores), num(in.Cores)), "%s x %s, of each that is left", rate(busiest), seconds(in.cpu()))
	return nil
}

// shortOfWorkers says why those that there are do not suffice: there are too few for the
// peak, or for partitions that one of them has more of than it carries.
func (p *Plan) shortOfWorkers(need float64) {
	in := &p.Input
	left := in.left(in.Workers)
	if all := left * p.WorkerRate; all < in.Rate {
		p.short("workers", in.Workers, need, "%s, without %s, carry %s x %s = %s, and %s are asked",
			count(in.Workers, "worker"), in.lost(in.Workers), num(left), rate(p.WorkerRate), rate(all), rate(in.Rate))
		return
	}
	p.short("workers", in.Workers, need, "without %s the busiest of %s has %s of %s, which is %s, and carries %s", in.lost(in.Workers),
		num(left), num(math.Ceil(in.Partitions/left)), count(in.Partitions, "partition"), rate(p.busyWith(in.Partitions, left)), rate(p.WorkerRate))
}

// cpu is a worker's processor time for a notification.
func (in *Input) cpu() float64 { return in.WorkerCPU + max(0, in.Devices-1)*in.DeviceCPU }

// workerRate works out what a worker carries: as much as the narrowest of its
// processors and its routes.
func (p *Plan) workerRate() {
	in := &p.Input
	p.WorkerRate = in.Cores * in.Busy / in.cpu()
	how := seconds(in.cpu())
	if in.Devices > 1 {
		how = fmt.Sprintf("(%s + %s more x %s)", seconds(in.WorkerCPU), num(in.Devices-1), seconds(in.DeviceCPU))
	}
	p.line("workers", "one carries, by CPU", rate(p.WorkerRate), "%s x %s / %s", count(in.Cores, "core"), share(in.Busy), how)
	for _, l := range in.pools() {
		flying := min(in.InFlight, l.connections*l.streams)
		r, of := flying/l.latency/(l.share*in.Devices), ""
		if part := l.share * in.Devices; part != 1 {
			of = fmt.Sprintf(" / %s pushes a notification", num(part))
		}
		p.line("workers", "one carries, by "+l.name, rate(r), "%s in flight (%s x %s streams, at most %s) / %s%s",
			num(flying), count(l.connections, "connection"), num(l.streams), num(in.InFlight), seconds(l.latency), of)
		p.WorkerRate = min(p.WorkerRate, r)
	}
}

// partitionRate works out what a partition carries: its open records by the time that
// each is open.
func (p *Plan) partitionRate() {
	in := &p.Input
	p.PartitionRate = in.Open * (1 - commitEarly) / p.openFor()
	p.line("partitions", "one carries", rate(p.PartitionRate), "%s open x %s, the rest waits for the commit / (%s + %s)",
		num(in.Open), share(1-commitEarly), seconds(in.Way), seconds(p.openFor()-in.Way))
}

// openFor is for how long a record is open before it is done: the slowest provider's
// answer is part of it.
func (p *Plan) openFor() float64 {
	slowest := 0.0
	for _, l := range p.Input.pools() {
		slowest = max(slowest, l.latency)
	}
	return p.Input.Way + slowest
}

// missing is how many of n workers may be missing.
func (in *Input) missing(n float64) float64 { return up(n*in.LostZones/in.Zones) + in.LostWorkers }

func (in *Input) left(n float64) float64 { return max(0, n-in.missing(n)) }

// workersFor is the least number of which as many are left.
func (in *Input) workersFor(left float64) float64 {
	n := math.Floor((left + in.LostWorkers) / (1 - in.LostZones/in.Zones)) // fewer are not enough
	for in.left(n) < left {
		n++
	}
	return n
}

// lost says in words what may be missing of n.
func (in *Input) lost(n float64) string {
	zone := fmt.Sprintf("%s in %s of %s", num(up(n*in.LostZones/in.Zones)), num(in.LostZones), count(in.Zones, "zone"))
	switch {
	case in.LostZones == 0:
		return num(in.LostWorkers) + " that may be missing"
	case in.LostWorkers == 0:
		return zone + " that may be missing"
	}
	return zone + " + " + num(in.LostWorkers) + " that may be missing"
}

// leftOn is the least number of workers that carry the peak on so many partitions: the
// busiest has its share rounded up to whole ones. More of them than partitions are no
// help, so what is not met with one each is a shortage that partitions says.
func (p *Plan) leftOn(partitions float64) float64 {
	n := min(up(p.Input.Rate/p.WorkerRate), partitions)
	for n < partitions && p.busyWith(partitions, n) > p.WorkerRate*(1+1e-9) {
		n++
	}
	return n
}

// busyWith is the rate of the busiest of n workers.
func (p *Plan) busyWith(partitions, n float64) float64 {
	return p.Input.Rate * math.Ceil(partitions/n) / partitions
}

// busiest is the rate of the busiest worker that is left.
func (p *Plan) busiest() float64 { return p.busyWith(p.Partitions, max(1, min(p.Left, p.Partitions))) }

func (p *Plan) whyLeft(left float64) string {
	in := &p.Input
	if in.Partitions == 0 || p.busyWith(in.Partitions, left) > p.WorkerRate*(1+1e-9) {
		return fmt.Sprintf("%s / %s = %s", rate(in.Rate), rate(p.WorkerRate), num(in.Rate/p.WorkerRate))
	}
	return fmt.Sprintf("%s / %s = %s; the busiest of %s has %s of %s: %s", rate(in.Rate), rate(p.WorkerRate), num(in.Rate/p.WorkerRate),
		num(left), num(math.Ceil(in.Partitions/left)), count(in.Partitions, "partition"), rate(p.busyWith(in.Partitions, left)))
}

// partitions works out how many there are to be, or whether those that there are
// suffice. alone is how many workers carry the peak.
func (p *Plan) partitions(alone float64) {
	in := &p.Input
	need := p.partitionsFor(max(alone, p.Left), p.Workers)
	if in.Partitions == 0 {
		p.Partitions = need
		left := max(alone, p.Left)
		p.line("partitions", "partitions", num(need), "%s for each of %s left: no fewer than %s / %s = %s, nor than %s",
			num(need/left), count(left, "worker"), rate(in.Rate), rate(p.PartitionRate), num(in.Rate/p.PartitionRate), count(p.Workers, "worker"))
		return
	}
	p.Partitions = in.Partitions
	one := in.Rate / in.Partitions
	p.line("partitions", "partitions", num(in.Partitions), "as told: %s each", rate(one))
	if one > p.PartitionRate*(1+1e-9) {
		least := up(in.Rate / p.PartitionRate)
		p.short("partitions", in.Partitions, p.partitionsFor(alone, max(least, in.workersFor(alone))),
			"each would have %s, and carries %s with %s open records; or --open %s", rate(one), rate(p.PartitionRate), num(in.Open),
			num(up(one*p.openFor()/(1-commitEarly))))
		return
	}
	if in.Partitions < alone || p.busyWith(in.Partitions, in.Partitions) > p.WorkerRate*(1+1e-9) {
		p.short("partitions", in.Partitions, need, "a partition has one worker, which carries %s: %s carry %s, and %s are asked",
			rate(p.WorkerRate), num(in.Partitions), rate(in.Partitions*p.WorkerRate), rate(in.Rate))
	}
}

// partitionsFor is a number of partitions that spreads evenly over the workers that are
// left, gives each of all workers one, and each partition no more than it carries. It is
// a multiple for each number of workers up to left that never is below the one before,
// so that more load never needs fewer partitions.
func (p *Plan) partitionsFor(left, all float64) float64 {
	each := up(p.WorkerRate / p.PartitionRate)
	n := 0.0
	for l := 1.0; l <= left; l++ {
		n = l * max(each, up(max(p.Input.workersFor(l), n)/l))
	}
	return left * max(1, up(max(n, all)/left))
}

// connections works out how many each worker has open.
func (p *Plan) connections() error {
	in, busiest := &p.Input, p.busiest()
	for _, l := range in.pools() {
		pushes := busiest * in.Devices * l.share
		open := max(1, up(pushes*l.latency/l.streams))
		if l.name == "APNs" {
			p.APNsConnections = open
		} else {
			p.FCMConnections = open
		}
		p.line("providers", l.name+" connections of a worker", num(open), "%s x %s = %s in flight / %s streams; %s in all",
			rate(pushes), seconds(l.latency), num(pushes*l.latency), num(l.streams), num(open*p.Workers))
	}
	if asked := p.pushes() * in.FCM; asked > 0 {
		p.line("providers", "FCM quota", num(up(asked*minute))+" a minute", "%s x %s x 60 s; %s are granted", rate(p.pushes()), share(in.FCM), num(in.FCMQuota))
		if asked*minute > in.FCMQuota*(1+1e-9) {
			p.short("fcm-quota", in.FCMQuota, up(asked*minute), "Google grants %s messages a minute, and %s are asked: more quota, or more projects", num(in.FCMQuota), num(up(asked*minute)))
		}
	}
	return nil
}
