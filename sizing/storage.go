package sizing

// cassandra works out rows, processor time, disk and nodes of the status store.
func (p *Plan) cassandra() error {
	in := &p.Input
	const part = "cassandra"
	p.CassandraRows = p.pushes() * in.Rows
	p.line(part, "rows at the peak", rate(p.CassandraRows), "%s pushes x %s", rate(p.pushes()), count(in.Rows, "row"))
	p.CassandraCores = p.CassandraRows * in.CassandraCPU * in.CassandraCopies / in.CassandraBusy
	cpu := up(p.CassandraCores / in.CassandraCores)
	p.line(part, "cores", num(p.CassandraCores), "%s x %s x %s / %s busy", rate(p.CassandraRows), seconds(in.CassandraCPU), copies(in.CassandraCopies), share(in.CassandraBusy))
	rows := in.PerDay * in.Devices * in.Rows
	p.CassandraBytes = rows * (in.TTL + in.DroppedAfter) / day * in.RowBytes * in.CassandraCopies
	room := p.CassandraBytes / in.CassandraFull
	disk := up(room / in.CassandraDisk)
	p.line(part, "data", size(p.CassandraBytes), "%s rows a day x (%s + %s) x %s x %s", num(rows), seconds(in.TTL), seconds(in.DroppedAfter), size(in.RowBytes), copies(in.CassandraCopies))
	p.line(part, "disk", size(room), "%s / %s full", size(p.CassandraBytes), share(in.CassandraFull))
	racks := in.CassandraCopies
	p.CassandraNodes = racks * up(max(1, cpu, disk)/racks)
	p.line(part, "nodes", num(p.CassandraNodes), "the larger of %s / %s = %s by CPU and %s / %s = %s by disk, as many in each of %s (one for each copy)",
		count(p.CassandraCores, "core"), num(in.CassandraCores), num(cpu), size(room), size(in.CassandraDisk), num(disk), count(racks, "rack"))
	return nil
}

// copies says how many of everything there are.
func copies(n float64) string {
	if n == 1 {
		return "1 copy"
	}
	return num(n) + " copies"
}

// kafka works out network and disk of the brokers.
func (p *Plan) kafka() error {
	in := &p.Input
	const part = "kafka"
	p.KafkaBytesIn = in.Rate * in.MessageBytes
	p.line(part, "from producers", size(p.KafkaBytesIn)+"/s", "%s x %s; as much to workers, %s between brokers",
		rate(in.Rate), size(in.MessageBytes), size(p.KafkaBytesIn*(in.KafkaCopies-1))+"/s")
	p.line(part, "cores in use", num(in.Rate*in.KafkaCPU), "%s x %s, of all brokers; copying not counted", rate(in.Rate), seconds(in.KafkaCPU))
	p.KafkaBytes = in.PerDay * in.MessageBytes * in.Retention / day * in.KafkaCopies / in.KafkaFull
	p.line(part, "disk", size(p.KafkaBytes), "%s a day x %s x %s x %s / %s full", num(in.PerDay), size(in.MessageBytes), seconds(in.Retention), copies(in.KafkaCopies), share(in.KafkaFull))
	return nil
}

// segments works out what they take in each worker: at most a bit for a user in each
// segment (docs/segments.md, Memory), and two versions while it changes to another.
func (p *Plan) segments() error {
	in := &p.Input
	switch {
	case in.Segments == 0:
		return nil
	case in.Users == 0:
		return wrong("segments", "a segment has a bit for each user: tell users")
	case in.Users > 1<<32:
		return wrong("segments", "user numbers end at 4,294,967,295, and there are %s users", num(in.Users))
	}
	p.SegmentBytes = 2 * in.Users * in.Segments / 8
	p.line("workers", "memory for segments", size(p.SegmentBytes), "%s users x 1 bit x %s x 2 versions while they change, in each worker", num(in.Users), count(in.Segments, "segment"))
	return nil
}
