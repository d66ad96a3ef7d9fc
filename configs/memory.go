package configs

import (
	"fmt"
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// Memory of single things, in bytes, rounded up. Sizes of structs are those of
// package pipeline with what they point to.
const (
	largestRecord = 152 << 10 // what is kept of a record: value and envelope of 64 KiB each, our headers and those of others
	itemBytes     = 3 << 9    // an Item with its user, tracker entry, headers and key
	deliveryBytes = 640       // a Delivery with its token, hash and place in queues
	devicesEach   = 3         // devices of a user, on average: what the sizing assumes
	streamBytes   = 8 << 10   // a request under way: payload (4 KiB), headers, buffers
	rowBytes      = 512       // a status row that waits for its batch or its ack
	// What a device got, while its batch is decided by rules that count in
	// Cassandra: itself and the row it will write, and 20 rows of the day, which is
	// what docs/devicelimits.md sizes for. Measured on 30,000 devices: 672 bytes
	// with no row, 2,801 with 20, 10,093 with 100. And the rows of a read under
	// way: of a full device, 4,096 of about 100 bytes.
	loggedBytes = 1<<10 + 20*112
	frameBytes  = 512 << 10
	// What a client of Kafka has unpacked and not handed out (package kafka,
	// maxUnpacked), and what unpacking one batch takes meanwhile: a buffer that may
	// have doubled once too often, and a copy.
	unpackedBytes = 64 << 20
	unpackBytes   = 3 * unpackedBytes
	// What one broker sends at a time, and what the client makes of records that
	// are not packed: 160 bytes and more of 7 (maxFetch, recordBytes).
	fetchBytes = 1 << 20
	fetchTimes = 26
	// Brokers that partitions of one lane are read from.
	fewestBrokers = 3
	openWindows   = 4 // windows of a partition that may be open in all (SourceOptions.OpenBytes)
	clients       = 2 // of a lane: one for its own topic, one for its retries
	// The program, its connections, and go-redis's and gocql's buffers.
	baseBytes = 128 << 20
)

// MemoryBound is how much memory a worker may need at worst, part by part.
type MemoryBound struct {
	Fetch      Bytes // fetch buffers: two clients a lane, for its topic and its retries
	Records    Bytes // keys, values and headers of open records
	Items      Bytes // what is known of open records
	Deliveries Bytes // what is to be sent of them
	Sends      Bytes // requests under way
	Rows       Bytes // status rows not yet acknowledged
	Devices    Bytes // what devices got, of batches that are being decided; 0 = it is in Redis
	Base       Bytes // the program itself
}

// MemoryBound computes the bound for a worker that owns all partitions of all
// lanes, as the last one of a fleet does. The garbage collector needs room on
// top: by default as much again, or none if GOMEMLIMIT is set to the bound. It
// holds whatever the records are; users have three devices on average, with 20
// rows a day where these are read.
//
//	clients     lanes x 2, each with a cap on open records and bytes of its own
//	fetch       clients x (64 MiB unpacked + 192 MiB to unpack in
//	                       + brokers x 1 MiB x 26)
//	records     clients x (min(4 x batch.open_per_partition x batch.bytes,
//	                           batch.open_records x 152 KiB) x 9/8
//	                       + one poll: 64 MiB unpacked + brokers x 1 MiB)
//	items       clients x batch.open_records x 1.5 KiB
//	deliveries  clients x batch.open_records x 3 devices x 640 B
//	sends       routes x send.in_flight x 8 KiB
//	rows        lanes x routes x status.unacknowledged x 512 B
//	devices     clients x min(batch.workers x batch.records, batch.open_records)
//	                    x 3 devices x (1 KiB + 20 rows x 112 B)
//	            + limits.devices.concurrency x 512 KiB
//	            if rules of devices count in Cassandra, else 0
//
// Brokers are those of kafka.brokers, at least three: a larger cluster, of which
// not all are named, adds 27 MiB a broker and client. An eighth is what memory
// that is shared by records leaves unused.
func (c *Config) MemoryBound() MemoryBound {
	lanes, routes := Bytes(len(c.Lanes)), Bytes(max(1, c.routes()))
	readers, open := lanes*clients, Bytes(c.Batch.OpenRecords)
	brokers := Bytes(max(fewestBrokers, len(c.Kafka.Brokers)))
	kept := min(openWindows*Bytes(c.Batch.OpenPerPartition)*c.Batch.Bytes, open*largestRecord)
	return MemoryBound{
		Fetch:      readers * (unpackedBytes + unpackBytes + brokers*fetchBytes*fetchTimes),
		Records:    readers * (kept + kept/8 + unpackedBytes + brokers*fetchBytes),
		Items:      readers * open * itemBytes,
		Deliveries: readers * open * devicesEach * deliveryBytes,
		Sends:      routes * Bytes(c.Send.InFlight) * streamBytes,
		Rows:       lanes * routes * Bytes(c.Status.Unacknowledged) * rowBytes,
		Devices:    c.loggedDevices(readers),
		Base:       baseBytes,
	}
}

// loggedDevices is what the batches hold that the stage of limits is deciding, of
// so many clients.
func (c *Config) loggedDevices(readers Bytes) Bytes {
	if !c.Limits.Devices.InCassandra() {
		return 0
	}
	deciding := min(Bytes(c.Batch.Workers)*Bytes(c.Batch.Records), Bytes(c.Batch.OpenRecords))
	return readers*deciding*devicesEach*loggedBytes + Bytes(c.Limits.Devices.Concurrency)*frameBytes
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
		for p := range push.Platforms {
			if a.Account(p) != nil {
				n += max(1, len(p.Environments()))
			}
		}
	}
	return n
}

// Total is the sum of the parts.
func (m MemoryBound) Total() Bytes {
	return m.Fetch + m.Records + m.Items + m.Deliveries + m.Sends + m.Rows + m.Devices + m.Base
}

// String gives the total and its parts in MiB, for the log at the start.
func (m MemoryBound) String() string {
	var parts []string
	for _, p := range []struct {
		name string
		size Bytes
	}{
		{"fetch buffers", m.Fetch}, {"records", m.Records}, {"items", m.Items}, {"deliveries", m.Deliveries},
		{"sends", m.Sends}, {"status rows", m.Rows}, {"devices' rows", m.Devices}, {"base", m.Base},
	} {
		parts = append(parts, fmt.Sprintf("%s %d", p.name, mebibytes(p.size)))
	}
	return fmt.Sprintf("%d MiB = %s", mebibytes(m.Total()), strings.Join(parts, " + "))
}

func mebibytes(b Bytes) int64 { return int64((b + 1<<20 - 1) >> 20) }
