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

// Append implements users.Log.
func (l UsersLog) Append(ctx context.Context, records []users.Record) error {
	rs := make([]kafka.Record, len(records))
	for i, r := range records {
		rs[i] = kafka.Record{Key: []byte(r.Key), Value: r.Value}
		if !r.IfNotAfter.IsZero() {
			rs[i].Headers = map[string]string{users.HeaderIfNotAfter: strconv.FormatInt(r.IfNotAfter.UnixMilli(), 10)}
		}
	}
	return l.Writer.Append(ctx, rs)
}
