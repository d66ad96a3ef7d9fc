package wiring

import (
	"context"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/users"
)

// UsersLog appends to push.users; it implements users.Log. All methods may be
// called at once.
type UsersLog struct{ *kafka.Writer }

// NewUsersLog opens push.users for appending. It does not connect before the
// first Append. The caller closes it.
func NewUsersLog(options kafka.Options) (UsersLog, error) {
	w, err := kafka.NewWriter(options, kafka.WriterOptions{Topic: kafka.UsersTopic, PartitionKey: users.PartitionKey, Linger: 2 * time.Millisecond})
	return UsersLog{w}, err
}

// NewQuarantineLog opens push.users.quarantine for appending, as NewUsersLog
// does push.users.
func NewQuarantineLog(options kafka.Options) (UsersLog, error) {
	w, err := kafka.NewWriter(options, kafka.WriterOptions{Topic: kafka.QuarantineTopic})
	return UsersLog{w}, err
}

// Append implements users.Log.
func (l UsersLog) Append(ctx context.Context, records []users.Record) error {
	rs := make([]kafka.Record, len(records))
	for i, r := range records {
		rs[i] = kafka.Record{Key: []byte(r.Key), Value: r.Value, Headers: usersHeaders(&r)}
	}
	return l.Writer.Append(ctx, rs)
}

// usersHeaders are the headers of a record; nil = none.
func usersHeaders(r *users.Record) map[string]string {
	if r.IfNotAfter.IsZero() && !r.Repeats {
		return nil
	}
	headers := make(map[string]string, 1)
	if !r.IfNotAfter.IsZero() {
		headers[users.HeaderIfNotAfter] = strconv.FormatInt(r.IfNotAfter.UnixMilli(), 10)
	}
	if r.Repeats {
		headers[users.HeaderRepeats] = "1"
	}
	return headers
}

// UsersRecord is the inverse: a record of push.users as package users reads it.
func UsersRecord(r kafka.Record) users.Record {
	u := users.Record{Key: string(r.Key), Value: r.Value, Repeats: r.Headers[users.HeaderRepeats] == "1"}
	if ms, err := strconv.ParseInt(r.Headers[users.HeaderIfNotAfter], 10, 64); err == nil {
		u.IfNotAfter = time.UnixMilli(ms)
	}
	return u
}
