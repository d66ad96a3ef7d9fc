package limits

import (
	"context"
	"time"
)

// The rows of the log: deploy/cassandra/schema.cql says what the columns mean. A
// statement is short on purpose: the driver looks it up by its text.
const (
	selectDay   = "SELECT type,id,channel,at,about,starts,ends FROM device_limit_days WHERE device=? AND date=? LIMIT 4097"
	selectTimes = "SELECT type,id,channel,at,about FROM device_limit_times WHERE device=? AND date=? LIMIT 4097"
	insertDay   = "INSERT INTO device_limit_days (device,date,type,id,channel,at,about,starts,ends) VALUES (?,?,?,?,?,?,?,?,?) USING TTL ?"
	insertTime  = "INSERT INTO device_limit_times (device,date,type,id,channel,at,about) VALUES (?,?,?,?,?,?,?) USING TTL ?"
)

// In which tables an event is, in the flags of one that was read. What is in that
// of times alone may be of another day: only rules that slide count it.
const (
	inDays  = 1 << 6
	inTimes = 1 << 7
)

// column is a row's place for scanning. Hashes are stored as signed numbers.
type column struct {
	kind         int32
	id           int64
	channel      int16
	at           int64
	about        int64
	starts, ends int64
}

func (c *column) event(device uint32, table uint8) event {
	return event{
		id: uint64(c.id), at: c.at, kind: uint32(c.kind), extra: device, channel: uint16(c.channel),
		app: uint16(c.about >> 32), lane: uint16(c.about >> 16), flags: uint8(c.about)&priorityBits | deviceFlag | table,
	}
}

func aboutOf(e *event) int64 {
	return int64(e.app)<<32 | int64(e.lane)<<16 | int64(e.priority())
}

func dayOfNumber(n int32) time.Time { return time.Unix(int64(n)*secondsADay, 0).UTC() }

// query reads a partition.
func (d *DeviceLog) query(ctx context.Context, statement string, values, dest []any, row func()) error {
	began := time.Now()
	err := d.tables.Query(ctx, statement, values, dest, row)
	d.metrics.read(ctx, began, err)
	return err
}

// readDay reads a device's partition of a day.
func (d *DeviceLog) readDay(ctx context.Context, l *logged, day int32) error {
	var c column
	dest := []any{&c.kind, &c.id, &c.channel, &c.at, &c.about, &c.starts, &c.ends}
	return d.query(ctx, selectDay, []any{l.key, dayOfNumber(day)}, dest, func() {
		l.read = append(l.read, c.event(l.device, inDays))
		w := span{dayUnit, c.starts, c.ends}
		if !l.running.contains(l.at) && (w.end > l.running.end || w.contains(l.at)) {
			l.running, l.date = w, day
		}
	})
}

// readTimes reads a device's partition of a day of UTC. An id that two callers
// have written at two times, or that is known of its day, is one event.
func (d *DeviceLog) readTimes(ctx context.Context, l *logged, day int32) error {
	var c column
	dest := []any{&c.kind, &c.id, &c.channel, &c.at, &c.about}
	return d.query(ctx, selectTimes, []any{l.key, dayOfNumber(day)}, dest, func() {
		e := c.event(l.device, inTimes)
		for i := range l.read {
			if known := &l.read[i]; known.same(&e) {
				known.flags |= inTimes
				return
			}
		}
		l.read = append(l.read, e)
	})
}

// row is one to be written.
type row struct {
	statement string
	values    []any
}

func (d *DeviceLog) write(ctx context.Context, r *row) error {
	began := time.Now()
	err := d.tables.Exec(ctx, r.statement, r.values...)
	d.metrics.wrote(ctx, began, err)
	return err
}

// appendRows appends a row for each table in which rules count the event and in
// which it is not yet.
func (l *logged) appendRows(rows []row, e *event, rules []rule) []row {
	var wanted uint8
	counted := *e
	counted.flags |= inDays
	for i := range rules {
		switch r := &rules[i]; {
		case !r.covers(&counted):
		case r.unit != 0:
			wanted |= inDays
		default:
			wanted |= inTimes
		}
	}
	wanted &^= e.flags
	kind, id, channel := int32(e.kind), int64(e.id), int16(e.channel)
	if wanted&inDays != 0 {
		w := (&calendar{running: l.spans, zone: l.zone, days: &days{}}).window(dayUnit, e.at)
		rows = append(rows, row{insertDay, []any{l.key, dayOfNumber(l.dateOf(e.at)), kind, id, channel, e.at, aboutOf(e), w.start, w.end, int(daysTTL.Seconds())}})
	}
	if wanted&inTimes != 0 {
		day := dayNumber(time.UnixMilli(e.at).UTC())
		rows = append(rows, row{insertTime, []any{l.key, dayOfNumber(day), kind, id, channel, e.at, aboutOf(e), int(timesTTL.Seconds())}})
	}
	return rows
}

// dateOf is the day whose partition counts what was allowed at a time: that of the
// running window, so that all of a window is in one.
func (l *logged) dateOf(at int64) int32 {
	if l.running.unit != 0 && l.running.contains(at) {
		return l.date
	}
	return dayNumber(time.UnixMilli(at).In(l.zone))
}
