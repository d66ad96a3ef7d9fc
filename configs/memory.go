package configs

import (
	"fmt"
	"strings"
)

// What one thing takes in memory, in bytes, rounded up. Sizes of structs are
// those of package pipeline with what they point to.
const (
	largestRecord = 64 << 10 // what the decoder accepts
	itemBytes     = 3 << 9   // an Item with its user, tracker entry, headers and key
	deliveryBytes = 640      // a Delivery with its token, hash and place in queues
	devicesEach   = 3        // devices of a user, on average: what the sizing assumes
	streamBytes   = 8 << 10  // a request under way: payload (4 KiB), headers, buffers
	rowBytes      = 512      // a status row that waits for its batch or its ack
	// A client reads at most 32 MiB a fetch and unpacks at most 64 MiB of one
	// batch of records.
	fetchBytes = 32<<20 + 64<<20
	// The program, its connections, and go-redis's and gocql's buffers.
	baseBytes = 128 << 20
)

// MemoryBound is how much memory a worker may need at worst, part by part.
type MemoryBound struct {
	Fetch      Bytes // fetch buffers: two clients a lane, for its topic and its retries
	Records    Bytes // values of open records
	Items      Bytes // what is known of open records
	Deliveries Bytes // what is to be sent of them
	Sends      Bytes // requests under way
	Rows       Bytes // status rows not yet acknowledged
	Base       Bytes // the program itself
}

// MemoryBound computes the bound for a worker that owns all partitions of all
// lanes, as the last one of a fleet does. The garbage collector needs room on
// top: by default as much again, or none if GOMEMLIMIT is set to the bound.
//
//	fetch       lanes x 2 x (32 MiB fetch + 64 MiB unpacked)
//	records     lanes x min(partitions x batch.open_per_partition x batch.bytes,
//	                        batch.open_records x 64 KiB)
//	items       lanes x batch.open_records x 1.5 KiB
//	deliveries  lanes x batch.open_records x 3 devices x 640 B
//	sends       routes x send.in_flight x 8 KiB
//	rows        lanes x routes x status.unacknowledged x 512 B
//
// Retry topics share the open records' cap of a lane only loosely; they are
// counted as one more partition window of batch.open_per_partition batches.
func (c *Config) MemoryBound() MemoryBound {
	lanes, routes := Bytes(len(c.Lanes)), Bytes(max(1, c.routes()))
	open := Bytes(c.Batch.OpenRecords)
	batch := Bytes(c.Batch.OpenPerPartition) * c.Batch.Bytes
	return MemoryBound{
		Fetch:      lanes * 2 * fetchBytes,
		Records:    lanes * (min(Bytes(c.Kafka.Topics.Partitions)*batch, open*largestRecord) + batch),
		Items:      lanes * open * itemBytes,
		Deliveries: lanes * open * devicesEach * deliveryBytes,
		Sends:      routes * Bytes(c.Send.InFlight) * streamBytes,
		Rows:       lanes * routes * Bytes(c.Status.Unacknowledged) * rowBytes,
		Base:       baseBytes,
	}
}

// routes is how many pools of connections there are.
func (c *Config) routes() (n int) {
	for _, a := range c.Apps {
		if a.APNS != nil {
			n += len(a.APNS.Environments)
		}
		if a.FCM != nil {
			n++
		}
	}
	return n
}

// Total is the sum of the parts.
func (m MemoryBound) Total() Bytes {
	return m.Fetch + m.Records + m.Items + m.Deliveries + m.Sends + m.Rows + m.Base
}

// String gives the total and its parts in MiB, for the log at the start.
func (m MemoryBound) String() string {
	var parts []string
	for _, p := range []struct {
		name string
		size Bytes
	}{
		{"fetch buffers", m.Fetch}, {"records", m.Records}, {"items", m.Items}, {"deliveries", m.Deliveries},
		{"sends", m.Sends}, {"status rows", m.Rows}, {"base", m.Base},
	} {
		parts = append(parts, fmt.Sprintf("%s %d", p.name, mebibytes(p.size)))
	}
	return fmt.Sprintf("%d MiB = %s", mebibytes(m.Total()), strings.Join(parts, " + "))
}

func mebibytes(b Bytes) int64 { return int64((b + 1<<20 - 1) >> 20) }
