//go:build linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/rpc"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// RowsVariable names the environment variable with the socket on which a worker lets its rows be read.
const RowsVariable = "PUSHBENCH_ROWS"

// Rows reads the rows of a worker that keeps them in its memory, at the socket of its RowsVariable. Each Read connects.
type Rows string

// Read are the rows of ids, aligned with them.
func (r Rows) Read(ctx context.Context, ids []string) (rows [][]push.Row, err error) {
	client, err := rpc.Dial("unix", string(r))
	if err != nil {
		return nil, fmt.Errorf("reading the worker's rows: %w", err)
	}
	defer client.Close()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	if err := client.Call("Rows.Read", ids, &rows); err != nil {
		return nil, fmt.Errorf("reading the worker's rows: %w", errors.Join(context.Cause(ctx), err))
	}
	return rows, nil
}

// rows is the other side of Rows, and the worker's status store.
type rows struct{ *status.Memory }

// Close implements worker.Status. The rows are read until the process ends.
func (rows) Close() {}

// served is what of rows can be called.
type served struct{ rows rows }

// Read looks ids up.
func (s served) Read(ids []string, found *[][]push.Row) (err error) {
	*found, err = s.rows.Memory.Read(context.Background(), ids)
	return err
}

// runWorker is pushworker run, but for its status store.
func runWorker(ctx context.Context, config string, log io.Writer) error {
	c, err := configs.Load(config, os.Environ())
	if err != nil {
		return err
	}
	memory, err := status.NewMemory(wiring.Layouts(c))
	if err != nil {
		return err
	}
	store := rows{memory}
	serving, stop := context.WithCancel(ctx)
	failed := make(chan error, 1) // of the goroutine below, which sends once
	go func() { failed <- serve(serving, os.Getenv(RowsVariable), "Rows", served{store}) }()
	err = worker.Run(ctx, worker.Options{Config: c, Log: newLog(log), Metrics: newMetrics(), Exit: os.Exit,
		OpenStatus: func(context.Context, status.Options) (worker.Status, error) { return store, nil }})
	stop()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, <-failed)
}

// runRegistry is pushworker registry.
func runRegistry(ctx context.Context, config string, log io.Writer) error {
	c, err := configs.Load(config, os.Environ())
	if err != nil {
		return err
	}
	if err := worker.RunRegistry(ctx, worker.RegistryOptions{Config: c, Log: newLog(log), Metrics: newMetrics()}); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func newLog(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }

// newMetrics has the process's figures too, as pushworker's has.
func newMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}
