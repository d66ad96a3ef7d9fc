package fanout

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// window bounds what is on its way to Kafka, in records and in bytes.
type window struct {
	records, bytes         *semaphore.Weighted
	mostRecords, mostBytes int64
}

func newWindow(l *Limits) *window {
	return &window{semaphore.NewWeighted(int64(l.Records)), semaphore.NewWeighted(int64(l.Bytes)), int64(l.Records), int64(l.Bytes)}
}

// take waits for room. What is larger than the window has all of it.
func (w *window) take(ctx context.Context, records, bytes int64) (giveBack func(), err error) {
	records, bytes = min(records, w.mostRecords), min(bytes, w.mostBytes)
	if err := w.records.Acquire(ctx, records); err != nil {
		return nil, err
	}
	if err := w.bytes.Acquire(ctx, bytes); err != nil {
		w.records.Release(records)
		return nil, err
	}
	return func() {
		w.records.Release(records)
		w.bytes.Release(bytes)
	}, nil
}

// flight is the records of one piece of work that are on their way, and waits for them.
type flight struct {
	producer Producer

	mu   sync.Mutex
	open int           // guarded by mu; records without a word
	err  error         // guarded by mu; the first error
	idle chan struct{} // guarded by mu; closed when open is 0; nil = nobody waits
}

// launch produces records. ended is called when there is a word on each of them: their
// memory can be used again then.
func (f *flight) launch(records []Record, ended func()) {
	if len(records) == 0 {
		ended()
		return
	}
	f.mu.Lock()
	f.open += len(records)
	f.mu.Unlock()
	left := len(records) // guarded by mu
	f.producer.Produce(records, func(err error) {
		f.mu.Lock()
		if err != nil && f.err == nil {
			f.err = err
		}
		left--
		last := left == 0
		if f.open--; f.open == 0 && f.idle != nil {
			close(f.idle)
			f.idle = nil
		}
		f.mu.Unlock()
		if last {
			ended()
		}
	})
}

// failed is the first error so far.
func (f *flight) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// wait returns when there is a word on every record, with the first error, or when ctx
// ends.
func (f *flight) wait(ctx context.Context) error {
	f.mu.Lock()
	if f.open > 0 && f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle, err := f.idle, f.err
	f.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
			err = f.failed()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("waiting for Kafka: %w", err)
	}
	return nil
}

// put produces records and waits until all are acknowledged.
func put(ctx context.Context, p Producer, records ...Record) error {
	f := flight{producer: p}
	f.launch(records, func() {})
	return f.wait(ctx)
}
