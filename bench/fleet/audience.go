//go:build unix

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
)

// Audience is a topic at a gateway, and who sends to its subscribers.
type Audience struct {
	Name    string
	Service string // its service type
	Caller  Caller
	Address string // of the gateway: host:port
}

// topicPause is how often a gateway is asked that does not know of Cassandra yet.
const topicPause = 50 * time.Millisecond

// Make makes it, for App. A gateway does not wait for Cassandra when it starts, so this does.
func (a *Audience) Make(ctx context.Context, gateway *Process) error {
	body := `{"app":"` + App + `","service_type":"` + a.Service + `","modes":["push"],"size":"medium"}`
	var made struct{ Name string }
	for {
		last := a.Caller.Order(ctx, http.MethodPut, "http://"+a.Address+"/v1/topics/"+a.Name, body, &made)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("making a topic: %w: %w", context.Cause(ctx), last)
		case <-gateway.Done():
			return errors.New("making a topic: the gateway has ended" + gateway.Tail())
		case <-time.After(topicPause):
		}
	}
}

// Send sends a message to all who have subscribed, and returns its receipt.
func (a *Audience) Send(ctx context.Context, message string) (string, error) {
	var accepted struct{ Receipt string }
	err := a.Caller.Order(ctx, http.MethodPost, "http://"+a.Address+"/v1/topics/"+a.Name+"/messages", message, &accepted)
	return accepted.Receipt, err
}

// Progress is how far a message to a topic is.
type Progress struct {
	Final  bool
	Fanout struct {
		State   string
		Emitted int
		Skipped map[string]int
	}
}

// Progress asks how far a message is, by its receipt.
func (a *Audience) Progress(ctx context.Context, receipt string) (*Progress, error) {
	p := new(Progress)
	return p, a.Caller.Order(ctx, http.MethodGet, "http://"+a.Address+"/v1/receipts/"+receipt, "", p)
}

// All fails unless that is the end, and so many have a record of the lane.
func (p *Progress) All(subscribers int) error {
	if !p.Final || p.Fanout.Emitted != subscribers || len(p.Fanout.Skipped) > 0 {
		return fmt.Errorf("of %d subscribers %d have a record, and %v were skipped", subscribers, p.Fanout.Emitted, p.Fanout.Skipped)
	}
	return nil
}

// Order makes one request of a gateway, which must do what it is asked for, and reads what it says.
func (a *Caller) Order(ctx context.Context, method, url, body string, into any) error {
	status, text, err := a.Ask(ctx, http.DefaultClient, method, url, []byte(body))
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s is answered %d %s", method, url, status, bytes.TrimSpace(text))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// Subscribe writes the first n of some users as subscribers of a topic that is there, as the store
// of subscriptions does, but only to the table that a fan-out reads, and many rows in a batch.
func (f *Fleet) Subscribe(ctx context.Context, topic string, n int, user func(i int) string) error {
	options, err := wiring.Cassandra(f.Config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	options.Timeout = time.Minute
	session, err := status.OpenSession(ctx, options)
	if err != nil {
		return err
	}
	defer session.Close()
	t, err := subscriptions.New(subscriptions.Options{Tables: session}).Topic(ctx, topic)
	if err != nil {
		return err
	}
	return WriteSubscribers(ctx, session, &t, n, user)
}

// How subscribers are written: rows of one partition in a batch, and batches at once.
const (
	subscribersOfBatch = 64
	batchesAtOnce      = 8
)

// WriteSubscribers writes the first n of some users, who subscribed an hour ago, only to the table that a
// fan-out reads.
func WriteSubscribers(ctx context.Context, tables subscriptions.Tables, t *subscriptions.Topic, n int, user func(i int) string) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	batches := make(chan [][]any, batchesAtOnce) // closed below, when all are in it
	var writing sync.WaitGroup
	for range batchesAtOnce {
		writing.Go(func() {
			for rows := range batches {
				if err := writeBatch(ctx, tables, rows); err != nil {
					fail(fmt.Errorf("writing subscribers: %w", err))
				}
			}
		})
	}
	since := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	of := make([][][]any, t.Layout.Buckets)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		id := user(i)
		slice := subscriptions.Slice(id)
		bucket := t.Layout.Bucket(slice)
		of[bucket] = append(of[bucket], []any{t.Name, t.Layout.Number, int16(bucket), int16(slice), id, int8(subscriptions.Push), int8(push.Priority(0)), since})
		if len(of[bucket]) == subscribersOfBatch {
			batches <- of[bucket]
			of[bucket] = nil
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

// writeTries is how often a batch is written that a busy Cassandra does not answer: again, it is the same rows.
const writeTries = 5

func writeBatch(ctx context.Context, tables subscriptions.Tables, rows [][]any) (err error) {
	const insert = "INSERT INTO subscriptions (topic, layout, bucket, slice, user, mode, priority, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?); "
	var values []any
	for _, row := range rows {
		values = append(values, row...)
	}
	for range writeTries {
		err = tables.Exec(ctx, "BEGIN UNLOGGED BATCH "+strings.Repeat(insert, len(rows))+"APPLY BATCH", values...)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}
