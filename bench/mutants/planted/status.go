//go:build planted

package planted

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/worker"
)

// openRemote opens the store at an address in place of Cassandra.
func openRemote(addr string) func(context.Context, status.Options) (worker.Status, error) {
	return func(ctx context.Context, o status.Options) (worker.Status, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("connecting to the planted status store: %w", err)
		}
		return &remoteStatus{client: rpc.NewClient(conn), layouts: o.Layouts}, nil
	}
}

// remoteStatus is the status store of bench/mutants, over TCP.
type remoteStatus struct {
	client  *rpc.Client
	layouts status.Layouts
}

func (s *remoteStatus) call(ctx context.Context, method string, args, reply any) error {
	call := s.client.Go("Status."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Write implements pipeline.Status.
func (s *remoteStatus) Write(ctx context.Context, rows []push.Row) error {
	var ok bool
	return s.call(ctx, "Write", rows, &ok)
}

// Read implements stages.Ledger. A reply that comes after ctx ended goes into
// memory that nobody reads.
func (s *remoteStatus) Read(ctx context.Context, ids []string) ([][]push.Row, error) {
	rows := new([][]push.Row)
	if err := s.call(ctx, "Read", ids, rows); err != nil {
		return nil, err
	}
	return *rows, nil
}

// Bucket implements pipeline.Status.
func (s *remoteStatus) Bucket(id string) int64 { return s.layouts.Bucket(id) }

func (s *remoteStatus) Close() { _ = s.client.Close() }

// ownRows is a copy of rows that shares no memory with the records that the
// rows were cut from.
func ownRows(rows []push.Row) []push.Row {
	own := make([]push.Row, len(rows))
	for i, r := range rows {
		r.ID, r.Device, r.ProviderID, r.Reason = strings.Clone(r.ID), strings.Clone(r.Device), strings.Clone(r.ProviderID), strings.Clone(r.Reason)
		own[i] = r
	}
	return own
}

// plantedStatus writes as write says.
type plantedStatus struct {
	pipeline.Status
	write func(ctx context.Context, rows []push.Row) error
}

func (s plantedStatus) Write(ctx context.Context, rows []push.Row) error {
	return s.write(ctx, rows)
}

// commitBeforeStatus calls rows durable that are written only later: what they
// stand for may be committed before.
func commitBeforeStatus(s *soil) {
	inner := s.Status
	s.Status = plantedStatus{inner, func(_ context.Context, rows []push.Row) error {
		rows = ownRows(rows)
		time.AfterFunc(300*time.Millisecond, func() { _ = inner.Write(context.Background(), rows) })
		return nil
	}}
}

// timeoutIsSuccess takes a write that was not acknowledged in time for one
// that was.
func timeoutIsSuccess(s *soil) {
	inner, timeout := s.Status, s.StatusTimeout
	s.Status = plantedStatus{inner, func(ctx context.Context, rows []push.Row) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		_ = inner.Write(ctx, rows)
		return nil
	}}
}

// lateIsDurable calls rows durable whose write has not been acknowledged for a
// second, and writes them when the store answers again: what they stand for is
// committed in the outage, and its rows come as if they had been in time. They
// come a while after the store, so that whoever looks has been able to.
func lateIsDurable(s *soil) {
	inner, ledger := s.Status, s.Ledger
	s.Status = plantedStatus{inner, func(ctx context.Context, rows []push.Row) error {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := inner.Write(soon, rows)
		if err == nil || ctx.Err() != nil || soon.Err() == nil || len(rows) == 0 {
			return err
		}
		go writeLate(inner, ledger, ownRows(rows)) // ends with the process
		return nil
	}}
}

// writeLate writes rows 15 seconds after the store answers.
func writeLate(store pipeline.Status, ledger pipeline.Ledger, rows []push.Row) {
	answers := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := ledger.Read(ctx, []string{rows[0].ID})
		return err == nil
	}
	for !answers() {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(15 * time.Second)
	_ = store.Write(context.Background(), rows)
}
