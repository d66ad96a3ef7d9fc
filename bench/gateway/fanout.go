//go:build linux

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
)

// What is sent to all subscribers.
const (
	fanoutTopic   = "everybody"
	fanoutService = "promotional"
	fanoutBody    = `{"title":"Snow until Sunday","body":"Up to 40 cm above 1,200 m, and fresh tracks on all of the slopes that are open.","data":{"region":"17"}}`
)

// fanOut seeds a topic, and lets one process of fan-outs make the lane's records of messages to
// it: each is a round, from its acceptance until the receipt says that it has
// ended, which is when Kafka has acknowledged every record. The process goes on.
func (w *world) fanOut(ctx context.Context, o *Options, r *Result) (err error) {
	if err := w.seed(ctx, o); err != nil {
		return err
	}
	p, err := w.StartFanout()
	if err != nil {
		return err
	}
	if err := p.AwaitReady(ctx); err != nil {
		return err
	}
	w.fanouts, w.pids[fanoutProcess] = p, p.PID()
	o.Progress("a message to %d subscribers", o.Subscribers)
	for round := 1; ; round++ {
		if r.Fanout, err = w.roundOfFanout(ctx, o, r, p); err != nil {
			return errors.Join(err, errors.New(p.Tail()))
		}
		if r.Fanout.Rounds = round; !o.again(round, r.Fanout.Compiling) {
			return nil
		}
	}
}

// endFanouts ends the process of fan-outs, if there is one.
func (w *world) endFanouts(ctx context.Context) error {
	p := w.fanouts
	if p == nil {
		return nil
	}
	w.fanouts = nil
	delete(w.pids, fanoutProcess)
	code, err := p.Term(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the process of fan-outs ended with status %d%s", code, p.Tail())
	}
	return err
}

// roundOfFanout is one message to all.
func (w *world) roundOfFanout(ctx context.Context, o *Options, r *Result, p *fleet.Process) (*Fanout, error) {
	before, err := w.takeFanout(ctx, p)
	if err != nil {
		return nil, err
	}
	profile := w.profileFanout(ctx, o, p)
	var took time.Duration
	err = w.counted(ctx, r, func() (_ *callerFigures, err error) {
		took, err = w.sendToAll(ctx, o)
		return &callerFigures{Messages: int64(o.Subscribers)}, err
	})
	if err != nil {
		return nil, errors.Join(err, profile.wait())
	}
	after, err := w.takeFanout(ctx, p)
	if err = errors.Join(err, profile.wait()); err != nil {
		return nil, err
	}
	f := fanoutBetween(before, after, took, o.Subscribers)
	o.Progress("  %.0f/s, fan-out %.2f us, %.1f allocations", f.Rate, f.FanoutCPU, f.Allocations)
	f.PeakRSS, err = usage.PeakMemory(p.PID())
	return f, err
}

// takeFanout is take for the process of fan-outs: its metrics stand where a gateway's do,
// and this process, which asks for the receipt, is the caller.
func (w *world) takeFanout(ctx context.Context, p *fleet.Process) (*account, error) {
	a, err := w.take(ctx, os.Getpid())
	if err != nil {
		return nil, err
	}
	a.gateway, err = p.Metrics(ctx)
	return a, err
}

// fanoutBetween is what happened between two accounts.
func fanoutBetween(before, after *account, took time.Duration, subscribers int) *Fanout {
	n := float64(subscribers)
	used := func(name string) float64 { return (after.cpu[name] - before.cpu[name]).Seconds() * 1e6 / n }
	counted := func(name string) float64 { return (after.gateway.Sum(name) - before.gateway.Sum(name)) / n }
	f := &Fanout{Subscribers: subscribers, Seconds: took.Seconds(), Rate: n / took.Seconds(), FanoutCPU: used(fanoutProcess), KafkaCPU: used(kafkaServer), CassandraCPU: used(cassandra),
		Allocations: counted("go_memstats_mallocs_total"), Bytes: counted("go_memstats_alloc_bytes_total")}
	var ours []time.Duration
	for name, all := range after.cpu {
		ours = append(ours, all-before.cpu[name])
	}
	between := after.at.Sub(before.at)
	f.Others, f.Compiling = usage.Others(between, after.machine-before.machine, ours...), usage.Compiling(between, before.compilers, after.compilers)
	return f
}

// profileFanout takes a profile of the process of fan-outs, if they are wanted.
func (w *world) profileFanout(ctx context.Context, o *Options, process *fleet.Process) *profiling {
	p := &profiling{}
	if o.Profiles == "" {
		return p
	}
	p.taking.Go(func() {
		taken, err := process.Profile(ctx, fmt.Sprintf("profile?seconds=%d", max(1, o.Subscribers/200_000)))
		if err == nil {
			err = os.WriteFile(filepath.Join(o.Profiles, "fanout.pprof"), taken, 0o600)
		}
		p.err = err
	})
	return p
}

// receiptPause is how often a receipt is asked for: so exact is the time that a fan-out takes.
const receiptPause = 50 * time.Millisecond

// sendToAll sends a message to the topic and waits until it has ended.
func (w *world) sendToAll(ctx context.Context, o *Options) (time.Duration, error) {
	began := time.Now()
	var accepted struct{ Receipt string }
	if err := w.askGateway(ctx, http.MethodPost, "/v1/topics/"+fanoutTopic+"/messages", fanoutBody, &accepted); err != nil {
		return 0, err
	}
	for {
		var said struct {
			Final  bool
			Fanout struct {
				State   string
				Emitted int
				Skipped map[string]int
			}
		}
		if err := w.askGateway(ctx, http.MethodGet, "/v1/receipts/"+accepted.Receipt, "", &said); err != nil {
			return 0, err
		}
		if said.Final {
			took := time.Since(began)
			if said.Fanout.Emitted != o.Subscribers || len(said.Fanout.Skipped) > 0 {
				return 0, fmt.Errorf("of %d subscribers %d have a record, and %v were skipped", o.Subscribers, said.Fanout.Emitted, said.Fanout.Skipped)
			}
			return took, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(receiptPause):
		}
	}
}

// askGateway makes one request and reads its answer.
func (w *world) askGateway(ctx context.Context, method, path, body string, into any) error {
	status, text, err := w.caller.Ask(ctx, http.DefaultClient, method, "http://"+w.address+path, []byte(body))
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s is answered %d %s", method, path, status, bytes.TrimSpace(text))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// seed makes the topic and writes its subscribers as the store of subscriptions does, but
// only to the table that a fan-out reads, and many rows in a batch.
func (w *world) seed(ctx context.Context, o *Options) error {
	o.Progress("writing %d subscribers", o.Subscribers)
	var made struct{ Name string }
	body := `{"app":"` + app + `","service_type":"` + fanoutService + `","modes":["push"],"size":"medium"}`
	for w.askGateway(ctx, http.MethodPut, "/v1/topics/"+fanoutTopic, body, &made) != nil { // it does not wait for Cassandra when it starts
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.gateway.Done():
			return errors.New("the gateway has ended")
		case <-time.After(receiptPause):
		}
	}
	options, err := wiring.Cassandra(w.Config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	options.Timeout = time.Minute
	session, err := status.OpenSession(ctx, options)
	if err != nil {
		return err
	}
	defer session.Close()
	topic, err := subscriptions.New(subscriptions.Options{Tables: session}).Topic(ctx, fanoutTopic)
	if err != nil {
		return err
	}
	return writeSubscribers(ctx, session, &topic, o.Subscribers)
}

// How subscribers are written: rows of one partition in a batch, and batches at once.
const (
	seedRows   = 64
	seedAtOnce = 8
)

// writeSubscribers writes users who subscribed an hour ago.
func writeSubscribers(ctx context.Context, tables subscriptions.Tables, t *subscriptions.Topic, n int) error {
	since := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	batches := make(chan [][]any, seedAtOnce) // closed below, when all are in it
	var writing sync.WaitGroup
	for range seedAtOnce {
		writing.Go(func() {
			for rows := range batches {
				var values []any
				for _, row := range rows {
					values = append(values, row...)
				}
				const insert = "INSERT INTO subscriptions (topic, layout, bucket, slice, user, mode, priority, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?); "
				if err := tables.Exec(ctx, "BEGIN UNLOGGED BATCH "+strings.Repeat(insert, len(rows))+"APPLY BATCH", values...); err != nil {
					fail(fmt.Errorf("writing subscribers: %w", err))
				}
			}
		})
	}
	of := make([][][]any, t.Layout.Buckets)
	for i := range n {
		user := fmt.Sprintf("user-%08d", i)
		slice := subscriptions.Slice(user)
		bucket := t.Layout.Bucket(slice)
		of[bucket] = append(of[bucket], []any{t.Name, t.Layout.Number, int16(bucket), int16(slice), user, int8(subscriptions.Push), int8(push.Priority(0)), since})
		if len(of[bucket]) == seedRows {
			batches <- of[bucket]
			of[bucket] = nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	for _, rows := range of {
		if len(rows) > 0 {
			batches <- rows
		}
	}
	close(batches)
	writing.Wait()
	return context.Cause(ctx)
}
